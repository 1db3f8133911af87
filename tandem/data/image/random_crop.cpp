#include "tandem/data/image/random_crop.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace tandem::data {
namespace {

constexpr double kNarrowest = 3.0 / 4, kWidest = 4.0 / 3;  // width / height
constexpr int kDraws = 10;

/// 0 .. count - 1.
int64_t draw_below(int64_t count, CounterRng& rng) {
  return static_cast<int64_t>(rng.uniform() * static_cast<double>(count));
}

PixelBox largest_middle(int64_t width, int64_t height) {
  const auto high = static_cast<double>(height), wide = static_cast<double>(width);
  const int64_t most_width = std::max<int64_t>(1, std::llround(high * kWidest));
  const int64_t most_height = std::max<int64_t>(1, std::llround(wide / kNarrowest));
  const int64_t part_width = std::min(width, most_width), part_height = std::min(height, most_height);
  return {(width - part_width) / 2, (height - part_height) / 2, part_width, part_height};
}

}  // namespace

PixelBox RandomCrop::part_of(int64_t width, int64_t height) const {
  CounterRng rng = rng_;
  const double area = static_cast<double>(width) * static_cast<double>(height);
  for (int i = 0; i < kDraws; ++i) {
    const double share = area * rng.uniform(least_area_, 1);
    const double aspect = std::exp(rng.uniform(std::log(kNarrowest), std::log(kWidest)));
    const int64_t part_width = std::llround(std::sqrt(share * aspect));
    const int64_t part_height = std::llround(std::sqrt(share / aspect));
    if (part_width < 1 || part_width > width || part_height < 1 || part_height > height) continue;
    const int64_t left = draw_below(width - part_width + 1, rng);
    return {left, draw_below(height - part_height + 1, rng), part_width, part_height};
  }
  return largest_middle(width, height);
}

void cut(Image& image, const PixelBox& box) {
  const auto lies_in = [](int64_t first, int64_t count, int64_t all) {
    return first >= 0 && count >= 1 && first + count <= all;
  };
  TORCH_CHECK_VALUE(lies_in(box.left, box.width, image.width) && lies_in(box.top, box.height, image.height),
                    "cut: part ", box.width, " x ", box.height, " at ", box.left, ", ", box.top,
                    " does not lie in an image of ", image.width, " x ", image.height);
  auto* const pixels = image.pixels.data();
  for (int64_t y = 0; y < box.height; ++y) {  // rows move towards the front
    const auto* from = pixels + ((box.top + y) * image.width + box.left) * 3;
    std::copy(from, from + box.width * 3, pixels + y * box.width * 3);
  }
  image.pixels.resize(static_cast<size_t>(box.width * box.height * 3));
  if (box.left + box.width < image.width) image.spare_width = 0;
  if (box.top + box.height < image.height) image.spare_height = 0;
  image.width = box.width, image.height = box.height;
}

}  // namespace tandem::data
