#include "tandem/data/image/resize.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <tuple>

#include "tandem/data/image/image_planes.h"
#include "tests/data/image_files.h"
#include "tests/support/files.h"

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

TEST(Resize, TheRestOfTheLastColumnIsLeftOut) {
  auto image = ramp(2, 1);
  image.spare_width = 0.75;  // 1.25 columns: weights 0.9 and 0.3 around their middle
  EXPECT_EQ(resized(image, 1, 1)[0], static_cast<uint8_t>((0.9 * 0 + 0.3 * 10) / 1.2 + 0.5));
}

TEST(Resize, EachTurnPutsThePixelsUpright) {
  Image stored{3, 2, {}};  // 1 2 3 over 4 5 6
  for (uint8_t i = 1; i <= 6; ++i) stored.pixels.insert(stored.pixels.end(), {i, 0, 0});
  const std::string upright[] = {"123456", "321654", "654321", "456123", "142536", "415263", "635241", "362514"};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const auto exif = test::exif_of(orientation);
    stored.turn = exif_turn(test::bytes_of(exif));
    std::string found;
    for (const auto red : resized(stored, orientation < 5 ? 2 : 3, orientation < 5 ? 3 : 2)) {
      if (red > 0) found += static_cast<char>('0' + red);
    }
    EXPECT_EQ(found, upright[orientation - 1]) << orientation;
  }
}

TEST(Resize, ATurnedImageGivesTheBytesOfTheUprightOne) {
  for (const auto& [width, height, side] : {std::tuple(48, 96, 32), {17, 23, 16}, {97, 211, 24}, {10, 7, 32}}) {
    Image stored{width, height, test::textured(width, height, 3, 1)};
    for (int orientation = 2; orientation <= 8; ++orientation) {
      const auto exif = test::exif_of(orientation);
      stored.turn = exif_turn(test::bytes_of(exif));
      const bool lies = stored.turn.transposed;
      const auto planes = resized(stored, lies ? width : height, lies ? height : width);
      const auto count = planes.size() / 3;
      Image upright{lies ? height : width, lies ? width : height, {}};
      for (size_t i = 0; i < planes.size(); ++i) upright.pixels.push_back(planes[i % 3 * count + i / 3]);
      EXPECT_EQ(resized(stored, side, side + 1), resized(upright, side, side + 1)) << width << ", " << orientation;
    }
  }
}

TEST(ReadPlanes, AReducedJpegIsNoOtherPicture) {
  const auto file = test::jpeg_of(97, 211, test::textured(97, 211, 3, 1));
  std::vector<uint8_t> reduced(3 * 24 * 24);
  EXPECT_LT(decode_image(test::bytes_of(file), 24).width, 97);
  read_planes(test::bytes_of(file), {.height = 24, .width = 24}, reduced);
  const auto whole = resized(decode_image(test::bytes_of(file)), 24, 24);
  int64_t sum = 0, most = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    const int64_t difference = std::abs(int{whole[i]} - int{reduced[i]});
    sum += difference;
    most = std::max(most, difference);
  }
  EXPECT_LE(static_cast<double>(sum), 2.0 * static_cast<double>(whole.size()));
  EXPECT_LE(most, 12);
}

TEST(ReadPlanes, StoredLeavesThePictureAsItLies) {
  const auto plain = test::jpeg_of(40, 30, test::textured(40, 30, 3, 1));
  const auto tagged = test::with_exif(plain, test::exif_of(8));
  const auto planes = [](const std::string& file, Orientation orientation) {
    std::vector<uint8_t> all(3 * 16 * 12);
    read_planes(test::bytes_of(file), {16, 12, orientation}, all);
    return all;
  };
  EXPECT_EQ(planes(tagged, Orientation::stored), planes(plain, Orientation::exif));
  EXPECT_NE(planes(tagged, Orientation::exif), planes(plain, Orientation::exif));
}

TEST(Resize, BufferMustFit) {
  std::vector<uint8_t> small(11);
  EXPECT_THROW(resize_to_planes(ramp(2, 2), 2, 2, small), c10::ValueError);
}

}  // namespace
}  // namespace tandem::data
