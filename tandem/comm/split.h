#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace tandem::comm {

/// How n things are spread over `parts`: n / parts each, the first n % parts get one more.
/// Throws c10::ValueError when n < 0 or parts < 1.
std::vector<int64_t> split_sizes(int64_t n, int parts);

/// [begin, end) of one part of that split.
std::pair<int64_t, int64_t> split_range(int64_t n, int parts, int part);

}  // namespace tandem::comm
