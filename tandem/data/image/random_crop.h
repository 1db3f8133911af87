#pragma once
#include <cstdint>

#include "tandem/base/rng.h"
#include "tandem/data/image/image_decoder.h"

namespace tandem::data {

/// Columns left .. left + width - 1 and rows top .. top + height - 1.
struct PixelBox {
  int64_t left, top, width, height;
};

/// A random part of a picture, which is then stretched to the whole: a share of the area uniform in least_area..1, an
/// aspect of 3/4 to 4/3, uniform in its logarithm, and any place. If none of ten draws fits, the largest part in the
/// middle with such an aspect.
/// Source: torchvision.transforms.RandomResizedCrop, with scale=(least_area, 1).
class RandomCrop {
 public:
  /// Equal streams give equal parts.
  RandomCrop(double least_area, const CounterRng& rng) : least_area_(least_area), rng_(rng) {}

  /// The part of a picture of these sides: always the same.
  PixelBox part_of(int64_t width, int64_t height) const;

 private:
  double least_area_;
  CounterRng rng_;
};

/// Leaves of an image the part `box` of its stored pixels. Throws c10::ValueError if it does not lie in the image.
void cut(Image& image, const PixelBox& box);

}  // namespace tandem::data
