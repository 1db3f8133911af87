#pragma once
#include "tandem/data/image/image_decoder.h"

namespace tandem::data {

/// The decoders behind decode_image(), which has looked at the header. Both throw DataError, as it does.
Image decode_jpeg(std::span<const std::byte> file, int64_t at_least);
Image decode_png(std::span<const std::byte> file);

/// An image of that size. The libraries read the header anew: throws DataError unless its bounds hold still.
Image blank_image(int64_t width, int64_t height);

/// Throws DataError: "is a JPEG that cannot be decoded (reason)".
[[noreturn]] void fail_to_decode(const char* format, const char* reason);

}  // namespace tandem::data
