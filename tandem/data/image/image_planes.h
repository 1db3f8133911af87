#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tandem::data {

/// Which way up pictures are: as EXIF says, or as their rows are stored.
enum class Orientation { exif, stored };

/// The form in which a data set gives its images.
struct ImageForm {
  int64_t height = 0, width = 0;
  Orientation orientation = Orientation::exif;
};

/// Decodes an image, turns it, and scales it to form.height x form.width, each side independently, into three planes
/// (red, green, blue) of bytes. Returns Image::oddity.
///
/// A large JPEG is decoded at 1/2, 1/4 or 1/8 of its size, as long as both sides stay three times as long as wanted:
/// bytes differ by at most 12, and by at most 2 in the mean, from those of the image decoded whole.
/// Throws as decode_image().
std::string read_planes(std::span<const std::byte> file, const ImageForm& form, std::span<uint8_t> planes);

}  // namespace tandem::data
