#pragma once
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace tandem::data {

/// Bytes of a pickle, where they lie in the file.
struct PickledBytes {
  std::span<const std::byte> stored;
  bool is_encoded = false;  // UTF-8 whose code points are the bytes
};

/// The bytes themselves: `stored`, or, where that is encoded, what it stands for, put into `decoded`.
std::span<const std::byte> plain_bytes(const PickledBytes& bytes, std::vector<std::byte>& decoded);

/// What a verification set's pickle holds: images 2i and 2i + 1 are pair i.
struct PickledPairs {
  std::vector<PickledBytes> images;
  std::vector<bool> same;
};

/// Reads (list of bytes, list of bool). Throws DataError (what read_pickle throws, another shape, not two images a
/// pair, no pair).
PickledPairs parse_pickled_pairs(std::span<const std::byte> file, std::string_view name);

}  // namespace tandem::data
