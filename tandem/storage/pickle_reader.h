#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tandem::storage {

/// encoded_bytes: bytes as Python 3 writes them at protocol 2, as UTF-8 whose code points are the bytes. latin1_text: a
/// str whose code points are all below 256. encode: the function _codecs.encode.
enum class PickleKind : uint8_t { bytes, encoded_bytes, text, latin1_text, boolean, list, tuple, encode };

/// The kind in words, for errors: "bytes", "a list".
const char* name_of(PickleKind kind);

struct PickleValue {
  PickleKind kind;
  std::span<const std::byte> bytes = {};  // of bytes and texts: a view of the file
  uint64_t number = 0;                    // of a bool: 0 or 1; of a list or tuple: its index in `sequences`
};

/// A list may contain itself.
struct Pickle {
  PickleValue root;
  std::vector<std::vector<PickleValue>> sequences;
};

/// The number of bytes of the first UTF-8 character of `text`, 1 or 2, if its code point is below 256; else 0. `text`
/// must not be empty.
size_t latin1_length(std::span<const std::byte> text);

/// Reads a pickle, protocol 2 to 5, of lists, tuples, bytes, bool and str, written by Python 3, or by Python 2 with its
/// str as bytes. Nothing is executed: the only known function is _codecs.encode, in which Python 3 wraps bytes at
/// protocol 2. Memory: in proportion to the number of opcodes; bytes are not copied. Bytes after the end of the pickle
/// are not read. Throws DataError naming the byte (another opcode or function, a length past the end, a wrong stack).
/// Source: the Python library's pickletools.
Pickle read_pickle(std::span<const std::byte> file, std::string_view name);

}  // namespace tandem::storage
