#include "tandem/base/box.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace tandem {
namespace {

int64_t end_of(const Box& box, size_t dim) { return box.first[dim] + box.count[dim]; }

/// The first dim along which the boxes begin at different places; 0 if there is none.
size_t dim_of_difference(std::span<const Box> boxes) {
  for (size_t dim = 0; dim < boxes[0].first.size(); ++dim) {
    const auto differs = [&](const Box& box) { return box.first[dim] != boxes[0].first[dim]; };
    if (std::ranges::any_of(boxes, differs)) return dim;
  }
  return 0;
}

/// Two boxes with an element in common. Boxes are compared only while they can overlap along one dim.
std::optional<std::pair<size_t, size_t>> overlap_of(std::span<const Box> boxes) {
  std::vector<size_t> order;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (volume(boxes[i]) > 0) order.push_back(i);
  }
  if (order.size() < 2) return {};
  if (boxes[0].first.empty()) return std::pair(order[0], order[1]);
  const auto dim = dim_of_difference(boxes);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return boxes[i].first[dim]; });
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = i + 1; j < order.size() && boxes[order[j]].first[dim] < end_of(boxes[order[i]], dim); ++j) {
      if (intersection(boxes[order[i]], boxes[order[j]])) return std::pair(order[i], order[j]);
    }
  }
  return {};
}

/// The number of elements of a tensor, in words: an untrusted file may name sizes whose product does not fit.
std::string num_elements(at::IntArrayRef sizes) {
  if (std::ranges::find(sizes, 0) != sizes.end()) return "0";
  int64_t product = 1;
  for (const auto size : sizes) {
    if (__builtin_mul_overflow(product, size, &product)) return "more than 2^63";
  }
  return std::to_string(product);
}

/// The boxes of dims dim.. for elements first .. last - 1 of their C order; `prefix`: the place along the dims before.
void add_boxes(at::IntArrayRef sizes, std::vector<int64_t>& prefix, int64_t first, int64_t last,
               std::vector<Box>& boxes) {
  if (first >= last) return;
  const auto dim = prefix.size();
  const int64_t inner = dim < sizes.size() ? c10::multiply_integers(sizes.slice(dim + 1)) : 1;
  const auto add_rows = [&](int64_t begin, int64_t end) {
    if (begin >= end) return;
    Box box{prefix, std::vector<int64_t>(dim, 1)};
    if (dim < sizes.size()) {
      box.first.push_back(begin);
      box.count.push_back(end - begin);
      for (const auto size : sizes.slice(dim + 1)) {
        box.first.push_back(0);
        box.count.push_back(size);
      }
    }
    boxes.push_back(std::move(box));
  };
  const auto add_within = [&](int64_t row, int64_t from, int64_t to) {
    prefix.push_back(row);
    add_boxes(sizes, prefix, from, to, boxes);
    prefix.pop_back();
  };
  int64_t row = first / inner;
  if (first % inner != 0) {
    add_within(row, first % inner, std::min(last - row * inner, inner));
    ++row;
  }
  add_rows(row, last / inner);
  if (last / inner >= row && last % inner != 0) add_within(last / inner, 0, last % inner);
}

}  // namespace

Box whole_box(at::IntArrayRef sizes) { return {std::vector<int64_t>(sizes.size(), 0), sizes.vec()}; }

int64_t volume(const Box& box) { return c10::multiply_integers(box.count); }

std::optional<Box> intersection(const Box& a, const Box& b) {
  TORCH_INTERNAL_ASSERT(a.first.size() == b.first.size());
  Box common;
  for (size_t dim = 0; dim < a.first.size(); ++dim) {
    const auto begin = std::max(a.first[dim], b.first[dim]), end = std::min(end_of(a, dim), end_of(b, dim));
    if (begin >= end) return {};
    common.first.push_back(begin);
    common.count.push_back(end - begin);
  }
  return common;
}

Tensor view_of(const Tensor& tensor, const Box& held, const Box& part) {
  auto view = tensor;
  for (size_t dim = 0; dim < part.first.size(); ++dim) {
    view = view.narrow(static_cast<int64_t>(dim), part.first[dim] - held.first[dim], part.count[dim]);
  }
  return view;
}

std::optional<int64_t> offset_of_run(const Box& held, const Box& part) {
  int64_t offset = 0;
  bool is_begun = false;  // an outer dim has more than one index, so that every inner dim must be whole
  for (size_t dim = 0; dim < held.first.size(); ++dim) {
    if (is_begun && part.count[dim] != held.count[dim]) return {};
    is_begun |= part.count[dim] != 1;
    offset = offset * held.count[dim] + part.first[dim] - held.first[dim];
  }
  return offset;
}

std::optional<std::string> tiling_fault(at::IntArrayRef sizes, std::span<const Box> boxes,
                                        std::span<const std::string> places) {
  if (const auto pair = overlap_of(boxes)) {
    const auto [one, other] = *pair;
    const auto common = intersection(boxes[one], boxes[other]);
    return "has " + to_string(*common) + " in " + places[one] + " and in " + places[other] + ", wanted it in one";
  }
  int64_t found = 0;
  for (const auto& box : boxes) found += volume(box);
  const auto wanted = num_elements(sizes);
  if (std::to_string(found) == wanted) return {};
  return "has " + std::to_string(found) + " elements in all parts, wanted " + wanted;
}

std::vector<Box> boxes_of_range(at::IntArrayRef sizes, int64_t first, int64_t count) {
  const auto total = c10::multiply_integers(sizes);
  TORCH_CHECK_VALUE(first >= 0 && count >= 0 && count <= total - first, "elements are ", first, "..", first + count - 1,
                    ", wanted some of the ", total, " of a tensor of sizes ", sizes);
  std::vector<int64_t> prefix;
  std::vector<Box> boxes;
  add_boxes(sizes, prefix, first, first + count, boxes);
  return boxes;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (size_t dim = 0; dim < box.first.size(); ++dim) {
    text += (dim == 0 ? "" : ", ") + std::to_string(box.first[dim]) + ".." + std::to_string(end_of(box, dim) - 1);
  }
  return text + "]";
}

}  // namespace tandem
