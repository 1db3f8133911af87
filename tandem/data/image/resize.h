#pragma once
#include <cstdint>
#include <span>

#include "tandem/data/image/image_decoder.h"

namespace tandem::data {

/// Scales an image to height x width, each side independently, into three planes (red, green, blue) of bytes.
///
/// Each pixel of the result is a mean with triangular weights around its place in the source. This is bilinear where
/// the image grows. Where it shrinks, the triangle is as wide as the step, so that every source pixel counts (an area
/// mean with soft edges, as Pillow's BILINEAR).
void resize_to_planes(const Image& image, int64_t height, int64_t width, std::span<uint8_t> planes);

}  // namespace tandem::data
