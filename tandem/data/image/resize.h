#pragma once
#include <cstdint>
#include <span>

#include "tandem/data/image/image_decoder.h"

namespace tandem::data {

/// Scales an image to height x width, each side by itself, into three planes (red, green, blue) of bytes.
///
/// A triangle of weights around each source place: bilinear where the image grows; where it shrinks the triangle is as
/// wide as the step, so every source pixel counts (an area mean with soft edges, as Pillow's BILINEAR).
void resize_to_planes(const Image& image, int64_t height, int64_t width, std::span<uint8_t> planes);

}  // namespace tandem::data
