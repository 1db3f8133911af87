#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tandem::data {

class RandomCrop;

/// Which way up pictures are: as EXIF says, or as their rows are stored.
enum class Orientation { exif, stored };

/// How a picture comes to the wanted sides.
///   stretch  each side is scaled by itself
///   crop     the picture keeps its aspect: it is scaled until it just covers the wanted sides, and the middle is cut
///            out. For a square this is torchvision's Resize followed by CenterCrop, with their rounding.
enum class Fit { stretch, crop };

/// The weights of the source pixels: Pillow's NEAREST, BILINEAR, and BICUBIC (Keys 1981, a = -0.5).
enum class Filter { nearest, bilinear, bicubic };

/// The planes of an image and their order. grey is one plane, Pillow's mode L: (19595 R + 38470 G + 7471 B + 32768) >>
/// 16, taken before the image is scaled.
enum class Colours { rgb, bgr, grey };

/// The form in which a data set gives its images.
struct ImageForm {
  int64_t height = 0, width = 0;
  Orientation orientation = Orientation::exif;
  Fit fit = Fit::stretch;
  Filter filter = Filter::bilinear;
  bool antialias = true;     // false: the kernel is not widened where the image shrinks, so that pixels are passed over
  int64_t reducing_gap = 3;  // decode at a smaller scale that leaves sides this many times as long; 0: always whole
  Colours colours = Colours::rgb;
  bool inverted = false;  // 255 - byte

  bool operator==(const ImageForm&) const = default;
};

/// `form` with these sides.
constexpr ImageForm with_sides(ImageForm form, int64_t height, int64_t width) {
  form.height = height;
  form.width = width;
  return form;
}

/// The planes of an image of this form: 1 or 3.
constexpr int64_t num_planes(const ImageForm& form) { return form.colours == Colours::grey ? 1 : 3; }

/// Decodes an image and gives it the form: num_planes() planes of height x width bytes. Returns Image::oddity.
///
/// A large JPEG is decoded at 1/2, 1/4 or 1/8 of its size, as long as both sides stay form.reducing_gap times as long
/// as the longer side wanted. By default bytes differ by at most 12, and by at most 2 in the mean, from those of the
/// image decoded whole.
///
/// With a `crop`, its part of the stored picture is cut out first and then stretched, whatever form.fit: pixels outside
/// of it do not count. Of a JPEG decoded at a smaller scale, the part is rounded to whole pixels of that scale.
/// Throws as decode_image(); c10::ValueError (size of `planes`, a negative gap, a side below 1).
std::string read_planes(std::span<const std::byte> file, const ImageForm& form, std::span<uint8_t> planes,
                        const RandomCrop* crop = nullptr);

}  // namespace tandem::data
