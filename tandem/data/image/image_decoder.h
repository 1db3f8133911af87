#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tandem/data/image/turn.h"

namespace tandem::data {

/// Larger images are rejected before memory is allocated for them. kMaxSide is the largest side of a JPEG.
inline constexpr int64_t kMaxPixels = int64_t{64} << 20, kMaxSide = 65535;

enum class ImageFormat { jpeg, png };

struct ImageHeader {
  ImageFormat format;
  int64_t width, height;  // as stored; 1..kMaxSide each, their product at most kMaxPixels
};

/// Red, green, blue, interleaved, rows as stored.
struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> pixels;  // height * width * 3
  std::string oddity;           // a warning of the decoder, though all pixels were decoded; empty: none
  Turn turn;                    // that EXIF asks for
  // How much of the last column and of the last row lies beyond the picture, 0 up to 1: the size of an image that is
  // decoded at a smaller scale is rounded up.
  double spare_width = 0, spare_height = 0;
};

/// True if a file begins like a JPEG or a PNG.
bool is_image(std::span<const std::byte> file);

/// Reads format and size from a file's first bytes without decoding. Cheap: a few hundred bytes are read.
/// Throws DataError, whose text is meant to follow a file's name: "is neither JPEG nor PNG", "is cut short ...".
/// Rejects JPEGs with arithmetic coding, 12 bits a sample, lossless coding, or other than 1, 3 or 4 channels.
ImageHeader read_image_header(std::span<const std::byte> file);

/// Decodes JPEG (grey, YCbCr, RGB, CMYK, YCCK) and PNG (every kind). Returns the whole image or throws: a JPEG with bad
/// codes, without its end, or with a channel that has no scan is an error. Lesser faults, such as bytes between two
/// markers or a progressive JPEG without its last scans, are reported in Image::oddity. (A damaged file may happen to
/// be valid: JPEG has no checksum.)
///
/// Pixels are the samples of the file: no gamma and no colour profile is applied. Of 16 bits the upper 8 are kept.
/// Transparent pixels are put over white by their samples, rounded to the nearest. CMYK is read as Adobe writes it,
/// where 255 is no ink, and becomes red = cyan * black / 255, rounded, and so on.
///
/// A JPEG much larger than `at_least` pixels a side may be decoded at 1/2, 1/4 or 1/8 of its size, but neither side
/// becomes smaller than `at_least`. Memory: the pixels, never more than kMaxPixels * 3, and for a progressive JPEG its
/// coefficients, 2 bytes a sample.
/// Throws DataError, with a text as above.
Image decode_image(std::span<const std::byte> file, int64_t at_least = kMaxSide);

}  // namespace tandem::data
