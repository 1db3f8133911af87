#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem {

/// The elements of a tensor whose index along each dim d is first[d] .. first[d] + count[d] - 1. A scalar has no dims
/// and one element.
struct Box {
  std::vector<int64_t> first, count;

  bool operator==(const Box&) const = default;
};

/// All elements of a tensor of these sizes.
Box whole_box(at::IntArrayRef sizes);

/// The number of elements.
int64_t volume(const Box& box);

/// The elements that are in both boxes; nullopt if there are none. Both have the same number of dims.
std::optional<Box> intersection(const Box& a, const Box& b);

/// A view of the elements `part` in a tensor that holds the elements `held`. `part` lies in `held`.
Tensor view_of(const Tensor& tensor, const Box& held, const Box& part);

/// If the elements `part` lie next to each other in the C order of the box `held`: how many elements of `held` come
/// before them. Else nullopt.
std::optional<int64_t> offset_of_run(const Box& held, const Box& part);

/// What is wrong if `boxes` do not hold each element of a tensor of `sizes` exactly once, such as "has 21 elements in
/// all parts, wanted 33" or "has [3..4, 0..2] in rank 0 and in rank 1, wanted it in one". Returns nullopt if nothing is
/// wrong. `places[i]`: what holds boxes[i], for the text. The boxes must lie in the tensor.
std::optional<std::string> tiling_fault(at::IntArrayRef sizes, std::span<const Box> boxes,
                                        std::span<const std::string> places);

/// The boxes, in order, that together are the elements first .. first + count - 1 of a tensor's C order: a part of a
/// tensor that was flattened before it was split. At most 2 * dims - 1 boxes; none if count is 0.
///
///   sizes [4, 5], first 3, count 9      . . . A A      A = [0..0, 3..4]
///                                       B B B B B      B = [1..1, 0..4]
///                                       C C . . .      C = [2..2, 0..1]
///                                       . . . . .
std::vector<Box> boxes_of_range(at::IntArrayRef sizes, int64_t first, int64_t count);

/// "[3..4, 0..2]".
std::string to_string(const Box& box);

}  // namespace tandem
