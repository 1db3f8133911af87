#include "tandem/data/image/image_planes.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tandem/data/image/image_decoder.h"
#include "tandem/data/image/random_crop.h"
#include "tandem/data/image/resize.h"

namespace tandem::data {

namespace {

/// The box's place in an image that may have been decoded at a smaller scale.
PixelBox scaled(const PixelBox& box, const ImageHeader& whole, const Image& image) {
  const auto along = [](int64_t first, int64_t count, int64_t pixels, double picture, int64_t all) {
    const double scale = picture / static_cast<double>(all);
    const int64_t begin = std::min<int64_t>(std::llround(static_cast<double>(first) * scale), pixels - 1);
    const int64_t end =
        std::clamp<int64_t>(std::llround(static_cast<double>(first + count) * scale), begin + 1, pixels);
    return std::pair(begin, end - begin);
  };
  const double across = static_cast<double>(image.width) - image.spare_width;
  const double down = static_cast<double>(image.height) - image.spare_height;
  const auto [left, width] = along(box.left, box.width, image.width, across, whole.width);
  const auto [top, height] = along(box.top, box.height, image.height, down, whole.height);
  return {left, top, width, height};
}

/// Decodes the image and cuts the part out of it. The part's sides stay `wanted` pixels long.
Image decode_part(std::span<const std::byte> file, int64_t wanted, const RandomCrop& crop) {
  const auto header = read_image_header(file);
  const auto box = crop.part_of(header.width, header.height);
  const double share =
      static_cast<double>(std::min(header.width, header.height)) / static_cast<double>(std::min(box.width, box.height));
  const double at_least = std::min<double>(kMaxSide, std::ceil(static_cast<double>(wanted) * share));
  auto image = decode_image(file, static_cast<int64_t>(at_least));
  cut(image, scaled(box, header, image));
  return image;
}

}  // namespace

std::string read_planes(std::span<const std::byte> file, const ImageForm& form, std::span<uint8_t> planes,
                        const RandomCrop* crop) {
  TORCH_CHECK_VALUE(form.reducing_gap >= 0, "reducing gap is ", form.reducing_gap, ", wanted 0 or more");
  const int64_t least = form.reducing_gap * std::max(form.height, form.width);
  const int64_t wanted = form.reducing_gap == 0 ? kMaxSide : least;
  auto image = crop == nullptr ? decode_image(file, wanted) : decode_part(file, wanted, *crop);
  if (form.orientation == Orientation::stored) image.turn = {};
  ImageForm part = form;
  if (crop != nullptr) part.fit = Fit::stretch;
  resize_to_planes(image, part, planes);
  return image.oddity;
}

}  // namespace tandem::data
