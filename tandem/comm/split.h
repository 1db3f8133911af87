#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tandem::comm {

/// How n things are spread over `parts`: n / parts each, the first n % parts get one more.
/// Throws c10::ValueError when n < 0 or parts < 1.
std::vector<int64_t> split_sizes(int64_t n, int parts);

/// n things spread in proportion to `weights`, which are not negative: each part's share rounded down, the rest to
/// those that lost most by it, the first of equals. Throws c10::ValueError for weights that are none.
std::vector<int64_t> split_by_weight(int64_t n, std::span<const double> weights);

/// [begin, end) of one part of that split.
std::pair<int64_t, int64_t> split_range(int64_t n, int parts, int part);

}  // namespace tandem::comm
