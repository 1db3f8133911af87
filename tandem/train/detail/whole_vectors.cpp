#include "tandem/train/detail/whole_vectors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace tandem::train::detail {
namespace {

constexpr int64_t kVectorBytes = 64;  // of AVX-512; shorter vectors fill it as well

/// The numbers of a vector, and those of a weight that fill none. CUDA's kernels compute each number alike.
std::pair<int64_t, int64_t> vector_and_rest(const Tensor& weight) {
  const int64_t size = kVectorBytes / static_cast<int64_t>(weight.element_size());
  return {size, weight.is_cuda() ? 0 : weight.numel() % size};
}

}  // namespace

int64_t WholeVectors::bytes(const Tensor& weight, int64_t lists) {
  return vector_and_rest(weight).second > 0 ? kVectorBytes * lists : 0;
}

WholeVectors::WholeVectors(const std::vector<List*>& lists, List& steps) {
  const size_t count = lists.front()->size();
  for (size_t i = 0; i < count; ++i) {
    const auto& weight = (*lists.front())[i];
    const auto [size, rest] = vector_and_rest(weight);
    const int64_t whole = weight.numel() - rest;
    const auto lies_well = [i](const List* list) { return list->empty() || (*list)[i].is_contiguous(); };
    if (rest == 0 || !std::ranges::all_of(lists, lies_well)) continue;
    for (auto* list : lists) {
      if (list->empty()) continue;
      const auto flat = (*list)[i].detach().view({-1});
      const auto original = flat.narrow(0, whole, rest);
      auto vector = at::zeros({size}, flat.options());
      vector.narrow(0, 0, rest).copy_(original);
      rests_.push_back({original, vector});
      (*list)[i] = whole > 0 ? flat.narrow(0, 0, whole) : vector;
      if (whole > 0) list->push_back(std::move(vector));
    }
    if (whole > 0 && !steps.empty()) steps.push_back(steps[i]);
  }
}

void WholeVectors::write_back() const {
  for (const auto& [original, vector] : rests_) original.copy_(vector.narrow(0, 0, original.numel()));
}

}  // namespace tandem::train::detail
