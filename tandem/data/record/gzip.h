#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tandem::data {

/// What is in a gzip file, all of its members. `name` begins error texts. Memory: the result, and half of it again
/// while it grows. Throws DataError: not gzip, damaged, cut short, bytes behind its end, more than `most_bytes` in it.
std::vector<std::byte> gunzip(std::span<const std::byte> file, uint64_t most_bytes, std::string_view name);

}  // namespace tandem::data
