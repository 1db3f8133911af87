#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::storage::detail {

/// An element type of the safetensors format, as the file names it.
struct SafetensorsDtype {
  std::string_view name;
  int bits;
};

/// All element types in the order in which the format sorts tensors: by rising alignment.
std::span<const SafetensorsDtype> safetensors_dtypes();

/// One tensor of a file. Its bytes lie at [begin, end) after the header, in C order, little endian.
struct SafetensorsEntry {
  std::string name;
  std::string_view dtype;  // a name from safetensors_dtypes()
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;

  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of the file, without gaps
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // bytes before the first tensor

  bool operator==(const SafetensorsHeader&) const = default;
};

/// The number of bytes that parse_safetensors_header() needs: 8 + the length stored in the first 8 bytes. Throws
/// DataError if this length is not valid for a header, or exceeds the file.
uint64_t safetensors_header_bytes(std::span<const std::byte> prefix, uint64_t file_size, std::string_view file);

/// Parses and checks a header from an untrusted source. `prefix`: the file's first bytes, at least the header.
///
/// Stricter than the format's own library, which accepts duplicate names or metadata keys, unknown fields, a tensor
/// written as a list, blanks before the '{', and a `__metadata__` of null. Further limits: names of at most 4096 bytes
/// without NUL, 16 dims, 1,000,000 tensors, dims and bits below 2^63. Memory: in proportion to the header's bytes.
/// Throws DataError naming the file, the field, what was found and what was wanted.
/// Source: github.com/huggingface/safetensors, format of release 0.8.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> prefix, uint64_t file_size,
                                           std::string_view file);

/// The bytes of a header, including length field and padding; the inverse of the parser. Names must be UTF-8.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace tandem::storage::detail
