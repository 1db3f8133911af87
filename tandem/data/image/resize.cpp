#include "tandem/data/image/resize.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace tandem::data {
namespace {

constexpr int64_t kColours = 3;

/// For each place of the result: the first source pixel and the weights of the source pixels, which add up to 1.
struct Taps {
  std::vector<int64_t> first;
  std::vector<std::vector<float>> weights;
};

/// `spare`: how much of the last of the `source` pixels lies beyond the picture.
Taps triangle_taps(int64_t source, double spare, int64_t target) {
  Taps taps;
  const double step = (static_cast<double>(source) - spare) / static_cast<double>(target), reach = std::max(step, 1.0);
  for (int64_t i = 0; i < target; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * step;
    const int64_t begin = std::max<int64_t>(0, std::llround(centre - reach));
    const int64_t end = std::min<int64_t>(source, std::llround(centre + reach));
    std::vector<double> weights;
    double sum = 0;
    for (int64_t j = begin; j < end; ++j) {
      weights.push_back(std::max(0.0, 1 - std::abs(static_cast<double>(j) + 0.5 - centre) / reach));
      sum += weights.back();
    }
    auto& normal = taps.weights.emplace_back();
    for (const double weight : weights) normal.push_back(static_cast<float>(weight / sum));
    taps.first.push_back(begin);
  }
  return taps;
}

/// Resizes one source row to `width` places of three colours.
void squeeze_row(const uint8_t* row, const Taps& taps, float* out) {
  for (size_t x = 0; x < taps.first.size(); ++x) {
    float red = 0, green = 0, blue = 0;
    const uint8_t* pixel = row + taps.first[x] * kColours;
    for (const float weight : taps.weights[x]) {
      red += weight * pixel[0];
      green += weight * pixel[1];
      blue += weight * pixel[2];
      pixel += kColours;
    }
    *out++ = red;
    *out++ = green;
    *out++ = blue;
  }
}

/// Rounds half up. Sums of float are taken for a half if they lie a little below one, so that a turned image gives the
/// same bytes whatever the order in which its pixels are added.
uint8_t to_byte(float value) {
  constexpr float kHalf = 0.501F;
  return static_cast<uint8_t>(std::clamp(value + kHalf, 0.0F, 255.0F));
}

/// `pixels`: height x width of the stored image, three colours each.
void store_planes(std::span<const float> pixels, int64_t height, int64_t width, const Turn& turn,
                  std::span<uint8_t> planes) {
  const int64_t rows = turn.transposed ? width : height, columns = turn.transposed ? height : width;
  for (int64_t place = 0; place < rows * columns; ++place) {
    int64_t y = place / columns, x = place % columns;
    if (turn.transposed) std::swap(y, x);
    if (turn.rows_mirrored) y = height - 1 - y;
    if (turn.columns_mirrored) x = width - 1 - x;
    for (int64_t colour = 0; colour < kColours; ++colour) {
      planes[static_cast<size_t>(colour * rows * columns + place)] =
          to_byte(pixels[static_cast<size_t>((y * width + x) * kColours + colour)]);
    }
  }
}

}  // namespace

void resize_to_planes(const Image& image, int64_t height, int64_t width, std::span<uint8_t> planes) {
  TORCH_CHECK_VALUE(planes.size() == static_cast<size_t>(height * width * kColours), "resize: buffer is ",
                    planes.size(), " bytes, wanted ", height * width * kColours);
  if (image.turn.transposed) std::swap(height, width);  // to those of the stored image
  const auto across = triangle_taps(image.width, image.spare_width, width);
  const auto down = triangle_taps(image.height, image.spare_height, height);
  const auto row_values = static_cast<size_t>(width * kColours);
  std::vector<float> row(row_values), sums(static_cast<size_t>(height) * row_values);
  size_t first_open = 0;  // the first place of the result that still needs source rows
  for (int64_t y = 0; y < image.height; ++y) {
    squeeze_row(image.pixels.data() + y * image.width * kColours, across, row.data());
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
  store_planes(sums, height, width, image.turn, planes);
}

}  // namespace tandem::data
