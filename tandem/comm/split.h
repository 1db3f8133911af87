#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tandem::comm {

/// Splits n items into `parts` parts of n / parts items each; the first n % parts parts get one more. Throws
/// c10::ValueError if n < 0 or parts < 1.
std::vector<int64_t> split_sizes(int64_t n, int parts);

/// Splits n items in proportion to `weights`. Each part is rounded down, and the remaining items go to the parts that
/// lost most by rounding, the first of equals first. Throws c10::ValueError if n or a weight is negative, or if all
/// weights are 0.
std::vector<int64_t> split_by_weight(int64_t n, std::span<const double> weights);

/// The range [begin, end) of part `part` of split_sizes(n, parts).
std::pair<int64_t, int64_t> split_range(int64_t n, int parts, int part);

/// What the sizes of all parts add up to.
int64_t sum_of(std::span<const int64_t> sizes);

}  // namespace tandem::comm
