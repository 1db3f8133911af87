#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tandem/train/checkpoint_store.h"

namespace tandem::train {

/// One checkpoint's tensors, whatever number of ranks wrote it: of what is split over the ranks' files, any rows.
///
///   files   rank_0000: rows 0..2      rank_0001: rows 3..4      rank_0002: rows 5..6
///   wanted                  rows 2 . . . . . . . . . . . . . 5
///
/// Opens a file when something of it is wanted and keeps it open. One thread uses a reader at a time.
class CheckpointReader {
 public:
  /// Reads the manifest and the headers of all files. Throws IoError; DataError: damaged, or rows that lie in no file
  /// or in two.
  CheckpointReader(const CheckpointStore& store, int64_t step);

  const storage::Manifest& manifest() const { return manifest_; }
  std::vector<std::string> names() const;  // in alphabetical order, without a rank's suffix

  /// How many rows a split tensor has in all; nothing for one that every rank has whole.
  std::optional<int64_t> split_rows(const std::string& name) const;

  /// New CPU tensors. Memory: the result and the largest part that is read for it. Throw DataError: no such tensor,
  /// rows that it does not have, wrong bytes.
  Tensor read(const std::string& name) const;
  Tensor read_rows(const std::string& name, int64_t first, int64_t count) const;

  /// Fills `target` with all of a tensor that every rank has, or with the rows of a split one that begin at `first`.
  /// Each part that is touched is read once and whole, so that its checksum is verified. Memory: one MiB; what is not a
  /// contiguous CPU tensor is read into one first. On failure `target` holds anything.
  /// Throws SettingsError when the checkpoint has no such tensor or another type, shape or number of rows; DataError,
  /// IoError, NonFiniteError when a part is damaged, cannot be read or is not finite.
  void read_into(const std::string& name, const Tensor& target) const;
  void read_rows_into(const std::string& name, const RowRange& rows, const Tensor& target) const;

  /// Reads and checks, in little memory, what is in the files beside the tensors `read`: of each file the rank whose
  /// turn it is, so that the ranks together read everything. Throws as read_into() does.
  void verify_others(const std::set<std::string>& read, int rank, int size) const;

  /// Every byte of all files, checked.
  void verify() const { verify_others({}, 0, 1); }

  /// A tensor to be written elsewhere, under the name `as`: read when that is done, a part at a time. This reader must
  /// outlive them.
  storage::TensorSource source(const std::string& name) const;
  storage::TensorSource source_of_rows(const std::string& name, int64_t first, int64_t count,
                                       const std::string& as) const;

 private:
  struct Part {
    int rank;
    RowRange rows;
  };
  void add_file(const CheckpointStore& store, int rank);
  void check_parts() const;
  const std::vector<Part>& parts_of(const std::string& name) const;
  void check_rows(const std::string& name, int64_t first, int64_t count) const;
  void give_rows(const std::string& name, int64_t first, int64_t count,
                 const std::function<void(const Tensor&)>& take) const;

  storage::Manifest manifest_;
  std::vector<storage::SafetensorsFile> files_;  // one a rank
  std::map<std::string, std::vector<Part>> parts_;
};

/// The name under which a rank's rows of a split tensor stand in its file.
std::string name_of_part(const std::string& name, int rank);

}  // namespace tandem::train
