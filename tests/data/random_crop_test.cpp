#include "tandem/data/image/random_crop.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/data/image/image_planes.h"
#include "tandem/data/image/resize.h"
#include "tandem/data/loader.h"
#include "tests/data/image_files.h"
#include "tests/data/patterns.h"
#include "tests/support/files.h"

namespace tandem::data {
namespace {

using Bytes = std::vector<uint8_t>;

RandomCrop crop_of(double least_area, uint64_t sample = 0) { return {least_area, CounterRng(3, 1, sample)}; }

bool operator==(const PixelBox& a, const PixelBox& b) {
  return a.left == b.left && a.top == b.top && a.width == b.width && a.height == b.height;
}

TEST(RandomCrop, PartsHaveTheShareAndTheAspectThatTorchvisionDraws) {
  constexpr int kDraws = 4000;
  double share_sum = 0, left_sum = 0, wide = 0;
  for (uint64_t sample = 0; sample < kDraws; ++sample) {
    const auto box = crop_of(0.25, sample).part_of(400, 400);
    const double width = static_cast<double>(box.width), height = static_cast<double>(box.height);
    ASSERT_TRUE(box.left >= 0 && box.top >= 0 && box.left + box.width <= 400 && box.top + box.height <= 400);
    EXPECT_GE(width * height, 0.245 * 400 * 400);
    EXPECT_GE(width / height, 0.74);
    EXPECT_LE(width / height, 1.35);
    share_sum += width * height / (400 * 400);
    left_sum += box.width < 400 ? static_cast<double>(box.left) / static_cast<double>(400 - box.width) : 0.5;
    wide += width > height ? 1 : 0;
  }
  EXPECT_NEAR(share_sum / kDraws, 0.565, 0.01);  // large shares fit less often: mean of 400,000 draws of torchvision
  EXPECT_NEAR(left_sum / kDraws, 0.5, 0.02);
  EXPECT_NEAR(wide / kDraws, 0.5, 0.03);
}

TEST(RandomCrop, IsAlwaysTheSameAndAnotherForAnotherSample) {
  const auto crop = crop_of(0.1, 5);
  EXPECT_TRUE(crop.part_of(300, 200) == crop.part_of(300, 200));
  EXPECT_TRUE(crop_of(0.1, 5).part_of(300, 200) == crop.part_of(300, 200));
  EXPECT_FALSE(crop_of(0.1, 6).part_of(300, 200) == crop.part_of(300, 200));
}

TEST(RandomCrop, WithoutADrawThatFitsTakesTheMiddle) {
  EXPECT_TRUE(crop_of(1).part_of(64, 64) == (PixelBox{0, 0, 64, 64}));
  EXPECT_TRUE(crop_of(0.9).part_of(400, 30) == (PixelBox{180, 0, 40, 30}));
  EXPECT_TRUE(crop_of(0.9).part_of(30, 400) == (PixelBox{0, 180, 30, 40}));
  EXPECT_TRUE(crop_of(0.9).part_of(1, 1) == (PixelBox{0, 0, 1, 1}));
}

TEST(RandomCrop, PixelsOutsideOfThePartDoNotCount) {
  const auto file = test::png_of(60, 44, 3, test::textured(60, 44, 3, 1));
  const auto box = crop_of(0.2, 1).part_of(60, 44);
  ASSERT_LT(box.width, 60);
  auto image = decode_image(test::bytes_of(file));
  cut(image, box);
  EXPECT_EQ(image.pixels.size(), static_cast<size_t>(box.width * box.height * 3));
  for (const auto fit : {Fit::stretch, Fit::crop}) {
    const ImageForm form{.height = 16, .width = 12, .fit = fit};
    Bytes ours(3 * 16 * 12), wanted(ours.size());
    const auto crop = crop_of(0.2, 1);
    read_planes(test::bytes_of(file), form, ours, &crop);
    resize_to_planes(image, {.height = 16, .width = 12}, wanted);
    EXPECT_EQ(ours, wanted);
  }
}

double mean_difference(const Bytes& a, const Bytes& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(int{a[i]} - int{b[i]});
  return sum / static_cast<double>(a.size());
}

/// Parts of a large JPEG, against those of the image decoded whole and cut there or a pixel of the result narrower.
TEST(RandomCrop, AReducedJpegGivesNoOtherPart) {
  const auto file = test::jpeg_of(331, 517, test::textured(331, 517, 3, 1));
  const ImageForm form{.height = 12, .width = 12}, whole{.height = 12, .width = 12, .reducing_gap = 0};
  int others = 0;
  for (uint64_t sample = 0; sample < 50; ++sample) {
    const auto crop = crop_of(0.05, sample);
    Bytes ours(3 * 12 * 12), wanted(ours.size()), narrower(ours.size());
    read_planes(test::bytes_of(file), form, ours, &crop);
    read_planes(test::bytes_of(file), whole, wanted, &crop);
    auto narrower_part = decode_image(test::bytes_of(file));
    auto box = crop.part_of(331, 517);
    box.width -= (box.width + 11) / 12;
    cut(narrower_part, box);
    resize_to_planes(narrower_part, whole, narrower);
    EXPECT_LT(mean_difference(ours, wanted), mean_difference(narrower, wanted)) << sample;
    others += ours == wanted ? 0 : 1;
  }
  EXPECT_GT(others, 25);  // decoded at a smaller scale
}

TEST(RandomCrop, ADataSetWithoutStoredPicturesCutsItsImages) {
  const test::Patterns patterns;
  Bytes read(64), whole(64), part(64), wanted(64);
  EXPECT_EQ(patterns.read(17, read), 6);
  EXPECT_EQ(patterns.read_cropped(17, crop_of(1), whole), 6);
  EXPECT_EQ(whole, read);
  EXPECT_EQ(patterns.read_cropped(17, crop_of(0.2), part), 6);
  Image image;
  image.width = image.height = 8;
  for (const auto byte : read) image.pixels.insert(image.pixels.end(), 3, byte);
  cut(image, crop_of(0.2).part_of(8, 8));
  resize_to_planes(image, {.height = 8, .width = 8, .colours = Colours::grey}, wanted);
  EXPECT_EQ(part, wanted);
}

TEST(RandomCrop, RanksTogetherSeeTheSameParts) {
  const test::Patterns patterns;
  const auto images = [&](int rank, int size, double least_area) {
    Loader loader(patterns, {.batch = 13, .rank = rank, .size = size, .augment = {.random_crop = least_area}});
    loader.start(2);
    Batch batch;
    EXPECT_TRUE(loader.next(batch));
    return batch.images;
  };
  const auto whole = images(0, 1, 0.3);
  EXPECT_TRUE(at::equal(at::cat({images(0, 3, 0.3), images(1, 3, 0.3), images(2, 3, 0.3)}), whole));
  EXPECT_FALSE(at::equal(whole, images(0, 1, 0)));
  EXPECT_TRUE(at::equal(images(0, 1, 1), images(0, 1, 0)));  // the whole of a square: the other draws are the same
}

TEST(RandomCrop, APartMustLieInTheImage) {
  Image image;
  image.width = 3, image.height = 2, image.pixels.resize(18);
  for (const auto& box : {PixelBox{0, 0, 4, 1}, {-1, 0, 1, 1}, {0, 2, 1, 1}, {0, 0, 1, 0}}) {
    EXPECT_THROW(cut(image, box), c10::ValueError);
  }
}

}  // namespace
}  // namespace tandem::data
