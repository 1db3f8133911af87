#pragma once
#include <unordered_map>
#include <vector>

#include "tandem/parallel/detail/flat_layout.h"
#include "tandem/parallel/parameter.h"

namespace tandem::parallel::detail {

/// Where the shards of a layout are: shard i on coordinate first + i of the axis shard.
struct ShardHolders {
  int first = 0;
  int own = 0, size = 1;  // this rank's coordinate, and how many there are
};

/// What this rank holds of `parameter`, tensor `i` of a layout: leaves, views of its shard, with their placements. Its
/// own placement is that of the mesh (Mesh::place()).
std::vector<Parameter> held_parts(const FlatLayout& layout, size_t i, const Parameter& parameter, const Tensor& shard,
                                  const ShardHolders& holders);

/// Throws c10::ValueError if a tensor is listed twice, or if a trained one has no numbers: no rank would hold a part.
void check_divisible(std::string_view who, const std::vector<Parameter>& parameters);

/// By which parts each of some tensors is replaced.
class PartsOf {
 public:
  const std::vector<Parameter>*& operator[](const Tensor& tensor) { return parts_[tensor.unsafeGetTensorImpl()]; }

  /// null: the tensor stays.
  const std::vector<Parameter>* find(const Tensor& tensor) const {
    const auto found = parts_.find(tensor.unsafeGetTensorImpl());
    return found == parts_.end() ? nullptr : found->second;
  }

 private:
  std::unordered_map<const c10::TensorImpl*, const std::vector<Parameter>*> parts_;
};

std::vector<Parameter> replace_by_parts(std::vector<Parameter> parameters, const PartsOf& parts);

}  // namespace tandem::parallel::detail
