#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tandem::data {

/// An array of bytes in the IDX format, in which MNIST comes, as a view of the file.
struct IdxArray {
  std::vector<int64_t> sizes;
  std::span<const std::byte> values;  // the last dim varies fastest
};

/// Big-endian: two zero bytes, the type of the values (8: unsigned bytes, the only one that is read), the number of
/// dims, a uint32 for each, then the values and nothing else. `name` begins error texts. Allocates no more than the
/// sizes. Throws DataError: another beginning, type or number of dims than `dims`; a file shorter or longer than it
/// says.
IdxArray parse_idx(std::span<const std::byte> file, size_t dims, std::string_view name);

}  // namespace tandem::data
