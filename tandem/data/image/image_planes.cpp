#include "tandem/data/image/image_planes.h"

#include <algorithm>

#include "tandem/data/image/image_decoder.h"
#include "tandem/data/image/resize.h"

namespace tandem::data {

/// Pillow's reducing_gap: from 3 up the result is hardly told from that of the whole image.
constexpr int64_t kReducingGap = 3;

std::string read_planes(std::span<const std::byte> file, const ImageForm& form, std::span<uint8_t> planes) {
  auto image = decode_image(file, kReducingGap * std::max(form.height, form.width));
  if (form.orientation == Orientation::stored) image.turn = {};
  resize_to_planes(image, form.height, form.width, planes);
  return image.oddity;
}

}  // namespace tandem::data
