#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tandem/train/checkpoint_store.h"

namespace tandem::train {

/// Reads the tensors of one checkpoint, whatever number of ranks wrote it. Any rows of a split tensor can be read, from
/// whichever files hold them.
///
///   files   rank_0000: rows 0..2      rank_0001: rows 3..4      rank_0002: rows 5..6
///   read                    rows 2 . . . . . . . . . . . . . 5
///
/// Opens all files and keeps them open. Not thread-safe.
class CheckpointReader {
 public:
  /// Reads the manifest and the headers of all files. Throws IoError if one cannot be read, and DataError if one is
  /// damaged or if some rows are in no file or in two.
  CheckpointReader(const CheckpointStore& store, int64_t step);

  const storage::Manifest& manifest() const { return manifest_; }
  std::vector<std::string> names() const;  // in alphabetical order, without a rank's suffix

  /// The number of rows of a split tensor in all; nullopt for a tensor that is not split.
  std::optional<int64_t> split_rows(const std::string& name) const;

  /// Return new CPU tensors. Memory: the result and the largest part read for it. Throw DataError if the tensor or its
  /// rows do not exist, or if the bytes are damaged.
  Tensor read(const std::string& name) const;
  Tensor read_rows(const std::string& name, int64_t first, int64_t count) const;

  /// Fill `target` with a tensor that is not split, or with `rows` of a split tensor. Each part that is needed is read
  /// once and completely, so that its checksum is verified. Memory: 1 MiB, and a copy of `target` if it is not a
  /// contiguous CPU tensor. On failure the content of `target` is undefined. Throw SettingsError if the checkpoint has
  /// no such tensor, or if its type, shape or number of rows differs; DataError, IoError or NonFiniteError if a part is
  /// damaged, cannot be read or is not finite.
  void read_into(const std::string& name, const Tensor& target) const;
  void read_rows_into(const std::string& name, const RowRange& rows, const Tensor& target) const;

  /// Reads and verifies, in little memory, all tensors in the files except the tensors `read`. Rank `rank` of `size`
  /// takes every size-th file, so that the ranks together read everything. Throws as read_into().
  void verify_others(const std::set<std::string>& read, int rank, int size) const;

  /// Reads and verifies every byte of all files.
  void verify() const { verify_others({}, 0, 1); }

  /// Return a tensor to be written elsewhere, under the name `as`. It is read while it is written, one part at a time.
  /// This reader must outlive the source.
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

/// The name of a rank's rows of a split tensor in its file.
std::string name_of_part(const std::string& name, int rank);

}  // namespace tandem::train
