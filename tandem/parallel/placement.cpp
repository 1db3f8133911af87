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

Placement Placement::of_box(const Box& part, at::IntArrayRef sizes, const Holders& holders) const {
  const auto whole = whole_sizes(sizes), first = box(sizes).first;
  const Axes along = {holders.axis};
  const bool divides = part != whole_box(sizes), are_some = holders.last - holders.first + 1 < holders.size;
  Placement own = {.split_along = divides ? split_along | along : split_along,
                   .some_along = are_some ? some_along | along : some_along,
                   .behind = holders.own > holders.first ? behind | along : behind - along};
  for (size_t dim = 0; dim < whole.size(); ++dim) {
    const Split split{static_cast<int64_t>(dim), first[dim] + part.first[dim], part.count[dim], whole[dim]};
    if (split.count < split.total) own.splits.push_back(split);
  }
  return own;
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
