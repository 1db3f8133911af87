#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tandem::storage {

/// encoded_bytes: bytes as Python 3 writes them at protocol 2, UTF-8 whose code points are the bytes.
/// latin1_text: a str whose code points are below 256. encode: the function _codecs.encode.
enum class PickleKind : uint8_t { bytes, encoded_bytes, text, latin1_text, boolean, list, tuple, encode };

/// "bytes", "a list", for errors.
const char* name_of(PickleKind kind);

struct PickleValue {
  PickleKind kind;
  std::span<const std::byte> bytes = {};  // of bytes and texts: where they lie in the file
  uint64_t number = 0;                    // of a bool: 0 or 1; of a list or tuple: its place among the sequences
};

/// A list may stand in itself.
struct Pickle {
  PickleValue root;
  std::vector<std::vector<PickleValue>> sequences;
};

/// Bytes of UTF-8 at the front of `text`, which is not empty, when they are a code point below 256: 1 or 2, else 0.
size_t latin1_length(std::span<const std::byte> text);

/// Reads a pickle, protocol 2 to 5, of lists, tuples, bytes, bool and str, written by Python 3 or, the bytes as str, by
/// Python 2. Nothing is executed: of functions _codecs.encode alone is known, which Python 3 puts around bytes at
/// protocol 2. Memory: in proportion to the number of opcodes; bytes are not copied. What follows the end is not read.
/// Throws DataError that names the byte (another opcode or function, a length past the end, a wrong stack).
/// Source: the Python library's pickletools.
Pickle read_pickle(std::span<const std::byte> file, std::string_view name);

}  // namespace tandem::storage
