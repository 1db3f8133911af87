#include "tandem/data/dataset.h"

#include <c10/util/Exception.h>

#include "tandem/data/image/resize.h"

namespace tandem::data {

void Dataset::check_read(int64_t index, std::span<uint8_t> pixels) const {
  TORCH_CHECK_INDEX(index >= 0 && index < size(), "sample index is ", index, ", wanted 0..", size() - 1);
  const auto [channels, height, width] = image_shape();
  const auto wanted = static_cast<size_t>(channels * height * width);
  TORCH_CHECK_VALUE(pixels.size() == wanted, "pixel buffer is ", pixels.size(), " bytes, wanted ", wanted);
}

int64_t Dataset::read_cropped(int64_t index, const RandomCrop& crop, std::span<uint8_t> pixels) const {
  const int64_t label = read(index, pixels);
  const auto [channels, height, width] = image_shape();
  const auto box = crop.part_of(width, height);
  for (int64_t channel = 0; channel < channels; ++channel) {
    const auto plane =
        pixels.subspan(static_cast<size_t>(channel * height * width), static_cast<size_t>(height * width));
    Image image;
    image.width = width, image.height = height;
    for (const uint8_t byte : plane) image.pixels.insert(image.pixels.end(), 3, byte);
    cut(image, box);
    resize_to_planes(image, {.height = height, .width = width, .colours = Colours::grey}, plane);  // grey: the byte
  }
  return label;
}

void Dataset::note_oddity(int64_t index, const std::string& name, const std::string& oddity) const {
  if (!oddity.empty()) odd_samples_.add(index, name + ": " + oddity);
}

}  // namespace tandem::data
