#pragma once
#include <cstdint>
#include <span>

#include "tandem/data/image/image_decoder.h"

namespace tandem::data {

/// Turns an image by Image::turn and scales it to height x width, each side independently, into three planes (red,
/// green, blue) of bytes. Columns and rows beyond the picture (Image::spare_width, spare_height) are left out.
///
/// Each pixel of the result is a mean with triangular weights around its place in the source. This is bilinear where
/// the image grows. Where it shrinks, the triangle is as wide as the step, so that every source pixel counts (an area
/// mean with soft edges). Pillow's resize(BILINEAR, box) differs by at most 1, as it rounds after each direction.
void resize_to_planes(const Image& image, int64_t height, int64_t width, std::span<uint8_t> planes);

}  // namespace tandem::data
