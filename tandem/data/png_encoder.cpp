#include "tandem/data/png_encoder.h"

#include <c10/util/Exception.h>
#include <png.h>

#include <new>
#include <vector>

namespace tandem::data {

std::string encode_png(std::span<const uint8_t> planes, const std::array<int64_t, 3>& shape) {
  const auto [channels, height, width] = shape;
  TORCH_CHECK_VALUE(channels == 1 || channels == 3, "png: channels is ", channels, ", wanted 1 or 3");
  const auto plane = static_cast<size_t>(height * width), count = static_cast<size_t>(channels);
  TORCH_CHECK_VALUE(planes.size() == plane * count, "png: planes have ", planes.size(), " bytes, wanted ",
                    plane * count);
  std::vector<uint8_t> pixels(planes.size());
  for (size_t i = 0; i < plane; ++i) {
    for (size_t channel = 0; channel < count; ++channel) pixels[i * count + channel] = planes[channel * plane + i];
  }
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(bytes, '\0');
  if (png_image_write_to_memory(&image, file.data(), &bytes, 0, pixels.data(), 0, nullptr) == 0) throw std::bad_alloc();
  file.resize(bytes);
  return file;
}

}  // namespace tandem::data
