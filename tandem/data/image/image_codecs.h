#pragma once
#include "tandem/data/image/image_decoder.h"

namespace tandem::data {

/// The decoders behind decode_image(), which checks the header first. Both throw DataError, as decode_image() does.
Image decode_jpeg(std::span<const std::byte> file, int64_t at_least);
Image decode_png(std::span<const std::byte> file);

/// An image of that size, all zeros. Throws DataError if the size is out of bounds: the libraries read the header
/// again, and may find another size than read_image_header() did.
Image blank_image(int64_t width, int64_t height);

/// Throws DataError: "is a JPEG that cannot be decoded (reason)".
[[noreturn]] void fail_to_decode(const char* format, const char* reason);

}  // namespace tandem::data
