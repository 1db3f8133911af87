#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tandem::data {

/// Larger images are refused before memory is taken for them. The side is what JPEG can hold.
inline constexpr int64_t kMaxPixels = int64_t{64} << 20, kMaxSide = 65535;

enum class ImageFormat { jpeg, png };

struct ImageHeader {
  ImageFormat format;
  int64_t width, height;  // 1..kMaxSide each, their product at most kMaxPixels
};

/// Red, green, blue, interleaved, rows from the top.
struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> pixels;  // height * width * 3
  std::string oddity;           // what the decoder warned of while all pixels came; empty: nothing
};

/// Whether a file begins as a JPEG or a PNG does.
bool is_image(std::span<const std::byte> file);

/// Format and size from a file's first bytes, nothing decoded. Cheap: a few hundred bytes are touched.
/// Throws DataError whose text goes behind a file's name: "is neither JPEG nor PNG", "is cut short ...". Arithmetic
/// coding, 12 bits a sample and lossless JPEGs are refused here.
ImageHeader read_image_header(std::span<const std::byte> file);

/// Decodes JPEG (grey, YCbCr, RGB) and PNG (every kind; what is transparent becomes white). The whole image or none: a
/// JPEG with bad codes, or with a scan or an end that is missing, is an error. Other breaches of the format's rules,
/// such as bytes between two markers, are told in Image::oddity. (A damaged file may be another valid one: JPEG has no
/// checksum.)
/// A JPEG much larger than `at_least` pixels a side may come out smaller, but never below it on either side, because
/// its transform is then decoded at 1/2, 1/4 or 1/8. Memory: the pixels, never more than kMaxPixels * 3.
/// Throws DataError, text as above.
Image decode_image(std::span<const std::byte> file, int64_t at_least = kMaxSide);

}  // namespace tandem::data
