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

std::vector<uint8_t> resized(const Image& image, const ImageForm& form) {
  std::vector<uint8_t> planes(static_cast<size_t>(form.height * form.width * num_planes(form)));
  resize_to_planes(image, form, planes);
  return planes;
}

std::vector<uint8_t> resized(const Image& image, int64_t height, int64_t width) {
  return resized(image, ImageForm{height, width});
}

/// An image that lies as `turn` says, behind the same one upright.
std::pair<Image, Image> upright_and_stored(int width, int height, const Turn& turn) {
  Image stored{width, height, test::textured(width, height, 3, 1)};
  stored.turn = turn;
  const auto planes = turn.transposed ? resized(stored, width, height) : resized(stored, height, width);
  const auto count = planes.size() / 3;
  Image upright{turn.transposed ? height : width, turn.transposed ? width : height, {}};
  for (size_t i = 0; i < planes.size(); ++i) upright.pixels.push_back(planes[i % 3 * count + i / 3]);
  return {upright, stored};
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
    for (int orientation = 2; orientation <= 8; ++orientation) {
      const auto exif = test::exif_of(orientation);
      const auto [upright, stored] = upright_and_stored(width, height, exif_turn(test::bytes_of(exif)));
      for (const auto filter : {Filter::bilinear, Filter::bicubic, Filter::nearest}) {
        for (const auto fit : {Fit::stretch, Fit::crop}) {
          const ImageForm form{.height = side, .width = side + 1, .fit = fit, .filter = filter};
          EXPECT_EQ(resized(stored, form), resized(upright, form)) << width << ", " << orientation;
        }
      }
    }
  }
}

TEST(Resize, CropCutsTheMiddleOut) {
  // Seven columns, two rows, at their own size: (7 - 2) / 2 = 2.5 columns are left out before, rounded to the even 2.
  EXPECT_EQ(resized(ramp(7, 2), {.height = 2, .width = 2, .fit = Fit::crop}),
            (std::vector<uint8_t>{20, 30, 20, 30, 0, 0, 10, 10, 7, 7, 7, 7}));
  // The height fills: (4 - 1) / 2 = 1.5 is rounded to 2.
  EXPECT_EQ(resized(ramp(4, 3), {.height = 3, .width = 1, .fit = Fit::crop})[1], 20);
  EXPECT_EQ(resized(ramp(3, 9), {.height = 3, .width = 3, .fit = Fit::crop})[9], 30);  // rows 3, 4, 5
}

TEST(Resize, NearestTakesThePixelInWhichThePlaceLies) {
  const auto planes = resized(ramp(5, 1), {.height = 1, .width = 2, .filter = Filter::nearest});
  EXPECT_EQ(planes, (std::vector<uint8_t>{10, 30, 0, 0, 7, 7}));  // places 1.25 and 3.75
}

TEST(Resize, WithoutAntialiasTheKernelKeepsItsWidth) {
  const auto planes = resized(ramp(9, 1), {.height = 1, .width = 3, .antialias = false});
  EXPECT_EQ(std::vector(planes.begin(), planes.begin() + 3), (std::vector<uint8_t>{10, 40, 70}));  // one pixel each
  const auto dot = [](bool antialias) {
    Image image{9, 1, std::vector<uint8_t>(27)};
    image.pixels[6] = 90;  // between the places
    return resized(image, {.height = 1, .width = 3, .antialias = antialias})[0];
  };
  EXPECT_EQ(dot(false), 0);
  EXPECT_GT(dot(true), 0);
}

TEST(Resize, BicubicOvershootsAndIsCut) {
  Image step{4, 1, {0, 0, 0, 0, 0, 0, 200, 200, 200, 200, 200, 200}};
  const auto planes = resized(step, {.height = 1, .width = 8, .filter = Filter::bicubic});
  EXPECT_EQ(planes[2], 0);    // below black
  EXPECT_GT(planes[5], 200);  // above the step
}

TEST(Resize, ColoursHaveTheirOrder) {
  const Image pixel{1, 1, {10, 20, 30}};
  EXPECT_EQ(resized(pixel, {.height = 1, .width = 1, .colours = Colours::bgr}), (std::vector<uint8_t>{30, 20, 10}));
  EXPECT_EQ(resized(pixel, {.height = 1, .width = 1, .inverted = true}), (std::vector<uint8_t>{245, 235, 225}));
  const ImageForm grey{.height = 1, .width = 1, .colours = Colours::grey};
  EXPECT_EQ(num_planes(grey), 1);
  EXPECT_EQ(resized(pixel, grey), (std::vector<uint8_t>{(19595 * 10 + 38470 * 20 + 7471 * 30 + 0x8000) >> 16}));
}

TEST(ReadPlanes, WithoutAGapAJpegIsDecodedWhole) {
  const auto file = test::jpeg_of(97, 211, test::textured(97, 211, 3, 1));
  std::vector<uint8_t> planes(3 * 8 * 8);
  const ImageForm form{.height = 8, .width = 8, .reducing_gap = 0};
  read_planes(test::bytes_of(file), form, planes);
  EXPECT_EQ(planes, resized(decode_image(test::bytes_of(file)), form));
  read_planes(test::bytes_of(file), {.height = 8, .width = 8}, planes);
  EXPECT_NE(planes, resized(decode_image(test::bytes_of(file)), form));
  EXPECT_THROW(read_planes(test::bytes_of(file), {.height = 8, .width = 8, .reducing_gap = -1}, planes),
               c10::ValueError);
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
  EXPECT_THROW(resize_to_planes(ramp(2, 2), {2, 2}, small), c10::ValueError);
  EXPECT_THROW(resize_to_planes(ramp(2, 2), {0, 2}, {}), c10::ValueError);
}

}  // namespace
}  // namespace tandem::data
