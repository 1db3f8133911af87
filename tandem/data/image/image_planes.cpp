#include "tandem/data/image/image_planes.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "tandem/data/image/image_decoder.h"
#include "tandem/data/image/resize.h"

namespace tandem::data {

std::string read_planes(std::span<const std::byte> file, const ImageForm& form, std::span<uint8_t> planes) {
  TORCH_CHECK_VALUE(form.reducing_gap >= 0, "reducing gap is ", form.reducing_gap, ", wanted 0 or more");
  const int64_t wanted = form.reducing_gap * std::max(form.height, form.width);
  auto image = decode_image(file, form.reducing_gap == 0 ? kMaxSide : wanted);
  if (form.orientation == Orientation::stored) image.turn = {};
  resize_to_planes(image, form, planes);
  return image.oddity;
}

}  // namespace tandem::data
