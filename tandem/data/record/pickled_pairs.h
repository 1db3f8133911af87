#pragma once
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace tandem::data {

/// Bytes of a pickle, as a view of the file.
struct PickledBytes {
  std::span<const std::byte> stored;
  bool is_encoded = false;  // UTF-8 whose code points are the bytes
};

/// The bytes themselves: `stored`, or, if it is encoded, the decoded bytes, which are put into `decoded`. Throws
/// DataError.
std::span<const std::byte> plain_bytes(const PickledBytes& bytes, std::vector<std::byte>& decoded);

/// The contents of a verification set's pickle: images 2i and 2i + 1 are pair i.
struct PickledPairs {
  std::vector<PickledBytes> images;
  std::vector<bool> same;
};

/// Reads a pickle of (list of bytes, list of bool). Throws DataError (as read_pickle() does, another structure, not two
/// images a pair, no pair).
PickledPairs parse_pickled_pairs(std::span<const std::byte> file, std::string_view name);

}  // namespace tandem::data
