#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/box.h"
#include "tandem/parallel/placement.h"
#include "tandem/storage/safetensors.h"

namespace tandem::train {

/// A tensor in files, and where its parts lie. A tensor that is not split has one part.
struct StoredTensor {
  struct Part {
    size_t file = 0;     // index of the file that holds it
    std::string stored;  // its name there
    Box box;
  };
  at::ScalarType type;
  std::vector<int64_t> sizes;    // of the whole tensor
  std::set<int64_t> split_dims;  // along which it is split; none: it is whole
  std::vector<Part> parts;       // hold each element exactly once
};

/// True for a name of what a checkpoint holds besides the model's weights: the state of an optimizer or of a strategy,
/// the names of the classes.
bool is_state_name(std::string_view name);

/// The tensors in safetensors files, whole or in the parts that ranks hold. Any box of a tensor can be read, from
/// whichever files hold it.
///
///   files   rank_0000: rows 0..2      rank_0001: rows 3..4      rank_0002: rows 5..6
///   read                    rows 2 . . . . . . . . . . . . . 5
///
/// Keeps the files open. Not thread-safe.
class StoredTensors {
 public:
  struct File {
    std::string name;  // for error texts
    int rank = 0;      // that wrote it, if it holds parts
    storage::SafetensorsFile content;
  };

  /// Throws DataError if the parts of a tensor differ in type or sizes, if some elements are in no file or in two, or
  /// if libtorch does not have an element type.
  explicit StoredTensors(std::vector<File> files);

  std::vector<std::string> names() const;  // in alphabetical order, without a rank's suffix

  bool contains(const std::string& name) const { return tensors_.contains(name); }

  /// Throws DataError if there is no such tensor.
  const StoredTensor& tensor(const std::string& name) const;

  /// Return new CPU tensors: all of it, or the elements `box`. Memory: the result, and twice the largest part of it if
  /// several files hold one each; a stored part whose elements of the box are not one run of bytes counts whole. Throw
  /// DataError if the tensor or the elements do not exist, or if the bytes are damaged.
  Tensor read(const std::string& name) const;
  Tensor read(const std::string& name, const Box& box) const;

  /// Fills `target`, the part of a tensor that `placement` says. Each stored part that is needed is read once and
  /// completely, so that its checksum is verified. Memory: 1 MiB; a copy of `target` if it is not a contiguous CPU
  /// tensor; and a copy of a stored part, one at a time, if what is needed of it is not one run of bytes both there and
  /// in `target` (never for tensors that are split along dim 0 there and here). A target of whole numbers takes stored
  /// floating-point numbers, as earlier versions have saved counters of a float64 job. On failure the content of
  /// `target` is undefined. Throws SettingsError if there is no such tensor, or if its type or sizes differ otherwise;
  /// DataError, IoError or NonFiniteError if a part is damaged, cannot be read, is not finite or holds no whole numbers
  /// where the target does.
  void read_into(const std::string& name, const parallel::Placement& placement, const Tensor& target) const;

  /// Reads and verifies, in little memory, all tensors in the files except the tensors `read`. Rank `rank` of `size`
  /// takes every size-th file, so that the ranks together read everything. Throws as read_into().
  void verify_others(const std::set<std::string>& read, int rank, int size) const;

  /// Reads and verifies every byte of all files.
  void verify() const { verify_others({}, 0, 1); }

  /// Returns the elements `box` of a tensor, to be written elsewhere under the name `as`. They are read while they are
  /// written, in slabs along dim 0 that begin and end where a stored part does. Memory: one part, or a slab if that is
  /// put together from several parts. This reader must outlive the source. Throws as read() does.
  storage::TensorSource source(const std::string& name, const Box& box, const std::string& as) const;

 private:
  void add_tensor(const std::string& stored, size_t file);
  void check_parts() const;
  Tensor read_part(const StoredTensor::Part& part, const Box& common) const;
  Tensor assemble(const StoredTensor& tensor, const Box& box) const;

  std::vector<File> files_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace tandem::train
