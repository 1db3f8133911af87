#pragma once
#include <cstdint>
#include <span>

#include "tandem/data/image/image_decoder.h"
#include "tandem/data/image/image_planes.h"

namespace tandem::data {

/// Turns an image by Image::turn and gives it the form: num_planes(form) planes of bytes. form.orientation and
/// form.reducing_gap have no effect. Columns and rows beyond the picture (Image::spare_width, spare_height) are left
/// out.
///
/// With the filters bilinear and bicubic, each pixel of the result is a weighted mean around its place in the source.
/// Where the image shrinks, the kernel is widened by the step, so that every source pixel counts, unless
/// form.antialias is false. Pillow's resize(filter, box) differs by at most 1, as it rounds after each direction; with
/// bicubic by more where the first of its directions overshoots black or white and is cut there (which direction is the
/// first depends on its version). nearest takes the pixel in which the place lies, as Pillow does; antialias has no
/// effect.
/// Throws c10::ValueError (size of `planes`, a side below 1).
void resize_to_planes(const Image& image, const ImageForm& form, std::span<uint8_t> planes);

}  // namespace tandem::data
