#include "tandem/parallel/placement.h"

#include <c10/util/Exception.h>

namespace tandem::parallel {

std::vector<int64_t> Placement::whole_sizes(at::IntArrayRef sizes) const {
  auto whole = sizes.vec();
  for (const auto& split : splits) whole.at(split.dim) = split.total;
  return whole;
}

Box Placement::box(at::IntArrayRef sizes) const {
  auto box = whole_box(sizes);
  for (const auto& split : splits) box.first.at(split.dim) = split.first;
  return box;
}

void check_placement(const std::string& what, const Placement& placement, at::IntArrayRef sizes) {
  int64_t next = 0;
  for (const auto& [dim, first, count, total] : placement.splits) {
    TORCH_CHECK_VALUE(dim >= next && dim < static_cast<int64_t>(sizes.size()), what, ": shape is ", sizes,
                      ", split along dim ", dim, ", wanted its dims in ascending order");
    TORCH_CHECK_VALUE(sizes[dim] == count, what, ": shape is ", sizes, ", wanted ", count, " along dim ", dim,
                      " as its placement has");
    TORCH_CHECK_VALUE(first >= 0 && count >= 0 && total >= 0 && first <= total && count <= total - first, what,
                      ": dim ", dim, " is ", first, "..", first + count - 1, ", wanted some of 0..", total - 1);
    next = dim + 1;
  }
}

}  // namespace tandem::parallel
