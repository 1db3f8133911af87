#include "tandem/data/image/resize.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace tandem::data {
namespace {

/// Pixel (x, y) has the colours (10 x, 10 y, 7).
Image ramp(int64_t width, int64_t height) {
  Image image{width, height, {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      image.pixels.insert(image.pixels.end(), {static_cast<uint8_t>(10 * x), static_cast<uint8_t>(10 * y), 7});
    }
  }
  return image;
}

std::vector<uint8_t> resized(const Image& image, int64_t height, int64_t width) {
  std::vector<uint8_t> planes(static_cast<size_t>(height * width * 3));
  resize_to_planes(image, height, width, planes);
  return planes;
}

TEST(Resize, SameSizeOnlySeparatesTheColours) {
  EXPECT_EQ(resized(ramp(3, 2), 2, 3),
            (std::vector<uint8_t>{0, 10, 20, 0, 10, 20, 0, 0, 0, 10, 10, 10, 7, 7, 7, 7, 7, 7}));
}

TEST(Resize, GrowingIsBilinear) {
  const auto planes = resized(ramp(2, 1), 1, 4);  // places 0.25 apart around the pixels' centres; edges hold
  EXPECT_EQ(std::vector(planes.begin(), planes.begin() + 4), (std::vector<uint8_t>{0, 3, 8, 10}));
}

TEST(Resize, ShrinkingCountsEveryPixel) {
  // Halving four columns: weights 3 3 1 around the left pair's middle (the window ends at the edge), and mirrored.
  const auto planes = resized(ramp(4, 4), 2, 2);
  EXPECT_EQ(planes[0], static_cast<uint8_t>((3 * 0 + 3 * 10 + 1 * 20) / 7.0 + 0.5));
  EXPECT_EQ(planes[1], static_cast<uint8_t>((1 * 10 + 3 * 20 + 3 * 30) / 7.0 + 0.5));
  EXPECT_EQ(planes[4], planes[0]);  // green by rows, as red by columns
  EXPECT_EQ(planes[6], planes[1]);
}

TEST(Resize, OneColourStays) {
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>(1, 9), {7, 3}, {100, 8}, {5, 64}}) {
    const Image image{from, 2 * from, std::vector<uint8_t>(static_cast<size_t>(from * 2 * from * 3), 131)};
    EXPECT_EQ(resized(image, to, to), std::vector<uint8_t>(static_cast<size_t>(to * to * 3), 131))
        << from << " to " << to;
  }
}

TEST(Resize, BufferMustFit) {
  std::vector<uint8_t> small(11);
  EXPECT_THROW(resize_to_planes(ramp(2, 2), 2, 2, small), c10::ValueError);
}

}  // namespace
}  // namespace tandem::data
