#include "tandem/data/image/resize.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace tandem::data {
namespace {

/// Along one side of the stored image: its pixels, the part of them that is the picture, and whether the result is
/// mirrored.
struct Side {
  int64_t pixels;
  double picture;
  bool mirrored;
};

/// The part of a side that makes the result, in source pixels.
struct Region {
  double first, extent;
};

/// For each place of the result: the first source pixel and the weights of the source pixels, which add up to 1.
struct Taps {
  std::vector<int64_t> first;
  std::vector<std::vector<float>> weights;
};

/// The region of Fit::crop. `scaled`: the pixels that the whole side would have, of which `target` in the middle
/// remain. Python's round() takes halves to the even number, as lrint() does.
Region middle_of(const Side& side, int64_t scaled, int64_t target) {
  const double step = side.picture / static_cast<double>(scaled);
  const int64_t before = std::lrint(static_cast<double>(scaled - target) / 2);
  const int64_t offset = side.mirrored ? scaled - target - before : before;
  return {static_cast<double>(offset) * step, static_cast<double>(target) * step};
}

/// The regions across and down.
std::pair<Region, Region> regions_of(const Side& across, const Side& down, int64_t height, int64_t width, Fit fit) {
  if (fit == Fit::stretch) return {{0, across.picture}, {0, down.picture}};
  const double by_height = static_cast<double>(height) * across.picture;
  const double by_width = static_cast<double>(width) * down.picture;
  if (by_height >= by_width) {  // the height fills
    return {middle_of(across, static_cast<int64_t>(by_height / down.picture), width), {0, down.picture}};
  }
  return {{0, across.picture}, middle_of(down, static_cast<int64_t>(by_width / across.picture), height)};
}

double kernel(Filter filter, double distance) {
  const double x = std::abs(distance);
  if (filter == Filter::bilinear) return std::max(0.0, 1 - x);
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/// The pixels in which the places lie. Places are added up along the upright picture, as Pillow does: sums decide about
/// a place between two pixels.
Taps nearest_taps(const Side& side, const Region& region, int64_t target) {
  Taps taps;
  const double step = region.extent / static_cast<double>(target);
  double place = (side.mirrored ? side.picture - region.first - region.extent : region.first) + step / 2;
  for (int64_t i = 0; i < target; ++i, place += step) {
    const double spare = static_cast<double>(side.pixels) - side.picture;
    const auto pixel = static_cast<int64_t>(side.mirrored ? place + spare : place);
    taps.first.push_back(std::clamp<int64_t>(side.mirrored ? side.pixels - 1 - pixel : pixel, 0, side.pixels - 1));
    taps.weights.push_back({1});
  }
  if (side.mirrored) std::ranges::reverse(taps.first);
  return taps;
}

Taps taps_of(const Side& side, const Region& region, int64_t target, const ImageForm& form) {
  if (form.filter == Filter::nearest) return nearest_taps(side, region, target);
  Taps taps;
  const double step = region.extent / static_cast<double>(target), scale = form.antialias ? std::max(step, 1.0) : 1.0;
  const double reach = form.filter == Filter::bicubic ? 2 * scale : scale;
  for (int64_t i = 0; i < target; ++i) {
    const double centre = region.first + (static_cast<double>(i) + 0.5) * step;
    const int64_t begin = std::max<int64_t>(0, std::llround(centre - reach));
    const int64_t end = std::min<int64_t>(side.pixels, std::llround(centre + reach));
    std::vector<double> weights;
    double sum = 0;
    for (int64_t j = begin; j < end; ++j) {
      weights.push_back(kernel(form.filter, (static_cast<double>(j) + 0.5 - centre) / scale));
      sum += weights.back();
    }
    auto& normal = taps.weights.emplace_back();
    for (const double weight : weights) normal.push_back(static_cast<float>(weight / sum));
    taps.first.push_back(begin);
  }
  return taps;
}

/// Resizes one source row to `width` places of three colours, or of one.
template <int64_t colours>
void squeeze_row(const uint8_t* row, const Taps& taps, float* out) {
  for (size_t x = 0; x < taps.first.size(); ++x) {
    std::array<float, colours> sums{};
    const uint8_t* pixel = row + taps.first[x] * colours;
    for (const float weight : taps.weights[x]) {
      for (size_t colour = 0; colour < sums.size(); ++colour) sums[colour] += weight * pixel[colour];
      pixel += colours;
    }
    out = std::ranges::copy(sums, out).out;
  }
}

/// Rounds half up. Sums of float are taken for a half if they lie a little below one, so that a turned image gives the
/// same bytes whatever the order in which its pixels are added.
uint8_t to_byte(float value) {
  constexpr float kHalf = 0.501F;
  return static_cast<uint8_t>(std::clamp(value + kHalf, 0.0F, 255.0F));
}

/// `pixels`: height x width of the stored image, num_planes(form) colours each.
void store_planes(std::span<const float> pixels, int64_t height, int64_t width, const Turn& turn, const ImageForm& form,
                  std::span<uint8_t> planes) {
  const int64_t rows = turn.transposed ? width : height, columns = turn.transposed ? height : width;
  const int64_t colours = num_planes(form);
  const uint8_t flips = form.inverted ? 255 : 0;
  for (int64_t place = 0; place < rows * columns; ++place) {
    int64_t y = place / columns, x = place % columns;
    if (turn.transposed) std::swap(y, x);
    if (turn.rows_mirrored) y = height - 1 - y;
    if (turn.columns_mirrored) x = width - 1 - x;
    for (int64_t colour = 0; colour < colours; ++colour) {
      const int64_t plane = form.colours == Colours::bgr ? colours - 1 - colour : colour;
      planes[static_cast<size_t>(plane * rows * columns + place)] =
          to_byte(pixels[static_cast<size_t>((y * width + x) * colours + colour)]) ^ flips;
    }
  }
}

/// Source: Pillow, rgb2l() of Convert.c.
std::vector<uint8_t> grey_of(std::span<const uint8_t> pixels) {
  std::vector<uint8_t> grey;
  grey.reserve(pixels.size() / 3);
  for (size_t at = 0; at < pixels.size(); at += 3) {
    const int sum = 19595 * pixels[at] + 38470 * pixels[at + 1] + 7471 * pixels[at + 2];
    grey.push_back(static_cast<uint8_t>((sum + 0x8000) >> 16));
  }
  return grey;
}

}  // namespace

void resize_to_planes(const Image& image, const ImageForm& form, std::span<uint8_t> planes) {
  auto height = form.height, width = form.width;
  const int64_t colours = num_planes(form);
  TORCH_CHECK_VALUE(height >= 1 && width >= 1, "resize: height is ", height, " and width ", width,
                    ", wanted 1 or more");
  TORCH_CHECK_VALUE(planes.size() == static_cast<size_t>(height * width * colours), "resize: buffer is ", planes.size(),
                    " bytes, wanted ", height * width * colours);
  if (image.turn.transposed) std::swap(height, width);  // to those of the stored image
  const auto side_of = [](int64_t pixels, double spare, bool mirrored) {
    return Side{pixels, static_cast<double>(pixels) - spare, mirrored};
  };
  const auto across_side = side_of(image.width, image.spare_width, image.turn.columns_mirrored);
  const auto down_side = side_of(image.height, image.spare_height, image.turn.rows_mirrored);
  const auto [across_region, down_region] = regions_of(across_side, down_side, height, width, form.fit);
  const auto across = taps_of(across_side, across_region, width, form);
  const auto down = taps_of(down_side, down_region, height, form);
  const auto grey = colours == 1 ? grey_of(image.pixels) : std::vector<uint8_t>();
  const auto& pixels = colours == 1 ? grey : image.pixels;
  const auto row_values = static_cast<size_t>(width * colours);
  std::vector<float> row(row_values), sums(static_cast<size_t>(height) * row_values);
  size_t first_open = 0;  // the first place of the result that still needs source rows
  for (int64_t y = 0; y < image.height; ++y) {
    const auto* from = pixels.data() + y * image.width * colours;
    colours == 1 ? squeeze_row<1>(from, across, row.data()) : squeeze_row<3>(from, across, row.data());
    for (size_t i = first_open; i < down.first.size() && down.first[i] <= y; ++i) {
      const auto tap = static_cast<size_t>(y - down.first[i]);
      if (tap >= down.weights[i].size()) {
        first_open = i + 1;  // windows move on in order
        continue;
      }
      const float weight = down.weights[i][tap];
      float* sum = sums.data() + i * row_values;
      for (size_t j = 0; j < row_values; ++j) sum[j] += weight * row[j];
    }
  }
  store_planes(sums, height, width, image.turn, form, planes);
}

}  // namespace tandem::data
