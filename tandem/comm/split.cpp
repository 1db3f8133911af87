#include "tandem/comm/split.h"

#include <c10/util/Exception.h>

#include <algorithm>

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

}  // namespace tandem::comm
