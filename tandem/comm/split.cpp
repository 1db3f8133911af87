#include "tandem/comm/split.h"

#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem::comm {

std::pair<int64_t, int64_t> split_range(int64_t n, int parts, int part) {
  TORCH_CHECK_VALUE(n >= 0, "split: size is ", n, ", wanted 0 or more");
  TORCH_CHECK_VALUE(parts >= 1, "split: parts is ", parts, ", wanted 1 or more");
  TORCH_CHECK_INDEX(part >= 0 && part < parts, "split: part is ", part, ", wanted 0..", parts - 1);
  const int64_t base = n / parts, extra = n % parts;
  const int64_t begin = part * base + std::min<int64_t>(part, extra);
  return {begin, begin + base + (part < extra ? 1 : 0)};
}

std::vector<int64_t> split_sizes(int64_t n, int parts) {
  TORCH_CHECK_VALUE(parts >= 1, "split: parts is ", parts, ", wanted 1 or more");
  std::vector<int64_t> sizes(parts);
  for (int part = 0; part < parts; ++part) {
    const auto [begin, end] = split_range(n, parts, part);
    sizes[part] = end - begin;
  }
  return sizes;
}

std::vector<int64_t> split_by_weight(int64_t n, std::span<const double> weights) {
  TORCH_CHECK_VALUE(n >= 0, "split: size is ", n, ", wanted 0 or more");
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  TORCH_CHECK_VALUE(std::isfinite(sum) && sum > 0 && std::ranges::all_of(weights, [](double w) { return w >= 0; }),
                    "split: weights are ", c10::ArrayRef<double>(weights.data(), weights.size()),
                    ", wanted numbers of 0 or more, not all 0");
  std::vector<int64_t> sizes;
  std::vector<std::pair<double, size_t>> losses;  // negative: what a part lost by rounding
  int64_t left = n;
  for (size_t part = 0; part < weights.size(); ++part) {
    const double exact = static_cast<double>(n) * (weights[part] / sum);
    sizes.push_back(std::min(left, static_cast<int64_t>(exact)));
    losses.emplace_back(weights[part] > 0 ? static_cast<double>(sizes.back()) - exact : 1.0, part);
    left -= sizes.back();
  }
  std::ranges::sort(losses);
  for (int64_t i = 0; i < left; ++i) ++sizes[losses[i % losses.size()].second];
  return sizes;
}

int64_t sum_of(std::span<const int64_t> sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }

}  // namespace tandem::comm
