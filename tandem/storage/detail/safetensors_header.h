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

/// All of them, in the order that the format sorts by: alignment rises.
std::span<const SafetensorsDtype> safetensors_dtypes();

/// One tensor of a file. Bytes lie at [begin, end) after the header, C order, little endian.
struct SafetensorsEntry {
  std::string name;
  std::string_view dtype;  // a name out of safetensors_dtypes()
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;

  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by place in the file, without holes
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // bytes before the first tensor

  bool operator==(const SafetensorsHeader&) const = default;
};

/// Bytes of the file that parse_safetensors_header wants to see: 8 + the length that stands in the first 8 bytes.
/// Throws DataError when the length is no header's, or more than the file has.
uint64_t safetensors_header_bytes(std::span<const std::byte> prefix, uint64_t file_size, std::string_view file);

/// Reads and checks a header that nobody vouches for. `prefix`: the file's first bytes, at least the header.
///
/// Stricter than the format's own library, which lets pass: a name or a metadata key given twice, unknown fields, a
/// tensor told as a list, blanks before the '{', `__metadata__` null. Further limits: names of 4096 bytes without NUL,
/// 16 dims, 1,000,000 tensors, dims and bits below 2^63. Allocates in proportion to the header's bytes.
/// Throws DataError that names file, field, what was found and what was wanted.
/// Source: github.com/huggingface/safetensors, format of release 0.8.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> prefix, uint64_t file_size,
                                           std::string_view file);

/// The header's bytes, length field and padding included; the inverse of the parser. Names are UTF-8.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace tandem::storage::detail
