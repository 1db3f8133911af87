#include "tandem/data/image/augment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::text_of;

std::vector<uint8_t> noise_image(int64_t values, uint64_t seed = 1) {
  CounterRng rng(seed, 0);
  std::vector<uint8_t> pixels(static_cast<size_t>(values));
  for (auto& pixel : pixels) pixel = static_cast<uint8_t>(rng.next());
  return pixels;
}

std::vector<float> augment(const AugmentOptions& options, std::array<int64_t, 3> shape,
                           const std::vector<uint8_t>& pixels, uint64_t position = 0) {
  Augmenter augmenter(options, shape);
  std::vector<float> out(pixels.size());
  CounterRng rng(7, 3, position);
  augmenter(pixels, rng, out.data());
  return out;
}

/// The definition, place by place, in double precision and with tests of bounds.
double reference(const std::vector<uint8_t>& plane, int64_t height, int64_t width, double background,
                 const Affine& affine, int64_t x, int64_t y) {
  const double middle_x = (width - 1) / 2.0, middle_y = (height - 1) / 2.0, u = x - middle_x, v = y - middle_y;
  const double at_x = affine.xx * u + affine.xy * v + affine.x0 + middle_x;
  const double at_y = affine.yx * u + affine.yy * v + affine.y0 + middle_y;
  double sum = 0;
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t column = 0; column < 2; ++column) {
      const double place_x = std::floor(at_x) + column, place_y = std::floor(at_y) + row;
      const bool inside = place_x >= 0 && place_y >= 0 && place_x < width && place_y < height;
      const double byte = inside ? plane[static_cast<size_t>(place_y * width + place_x)] : background;
      sum += (1 - std::abs(at_x - place_x)) * (1 - std::abs(at_y - place_y)) * byte;
    }
  }
  return (sum / 255 - 0.5) / 0.5;
}

TEST(Augment, NothingAskedIsOnlyTheScale) {
  const auto pixels = noise_image(3 * 5 * 7);
  const auto out = augment(no_augmentation(), {3, 5, 7}, pixels);
  for (size_t i = 0; i < pixels.size(); ++i) EXPECT_NEAR(out[i], (pixels[i] / 255.0 - 0.5) / 0.5, 1e-6);
  auto options = no_augmentation();
  options.normalization = {{0.25}, {2}};
  EXPECT_NEAR(augment(options, {3, 5, 7}, pixels)[9], (pixels[9] / 255.0 - 0.25) / 2, 1e-6);
}

TEST(Augment, AFlipMirrorsExactly) {
  const auto pixels = noise_image(3 * 5 * 7);
  const auto plain = augment(no_augmentation(), {3, 5, 7}, pixels);
  auto options = no_augmentation();
  options.flip = 1;
  const auto mirrored = augment(options, {3, 5, 7}, pixels);
  for (size_t i = 0; i < pixels.size(); ++i) EXPECT_EQ(mirrored[i], plain[i / 7 * 7 + 6 - i % 7]);
  options.flip = 0.25;
  int flipped = 0;
  for (uint64_t position = 0; position < 1000; ++position) {
    flipped += augment(options, {3, 5, 7}, pixels, position) == mirrored ? 1 : 0;
  }
  EXPECT_NEAR(flipped, 250, 50);
}

TEST(Augment, TransformEqualsItsDefinition) {
  const int64_t height = 9, width = 13;
  const auto pixels = noise_image(height * width);
  AugmentOptions options;
  options.background = 40;
  Augmenter augmenter(options, {1, height, width});
  std::vector<float> out(pixels.size());
  for (const Affine& affine :
       {Affine{1.1, -0.2, 1.3, 0.15, 0.9, -0.7}, Affine{1, 0, 2, 0, 1, 0}, Affine{0.3, 0, 0, 0, 0.3, 0},
        Affine{-1, 0, 0, 0, -1, 0}, Affine{1, 0, 500, 0, 1, -500}, Affine{4, 3, 0, -3, 4, 0}}) {
    augmenter.transform(pixels, affine, out.data());
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        EXPECT_NEAR(out[static_cast<size_t>(y * width + x)], reference(pixels, height, width, 40, affine, x, y), 1e-4)
            << x << ", " << y << " of " << affine.xx << ", " << affine.x0;
      }
    }
  }
}

TEST(Augment, ChannelsMoveTogether) {
  const auto plane = noise_image(64);
  auto pixels = plane;
  for (int channel = 1; channel < 3; ++channel) pixels.insert(pixels.end(), plane.begin(), plane.end());
  const auto out = augment({.blur = 1}, {3, 8, 8}, pixels);
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 64, out.begin() + 64));
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 64, out.begin() + 128));
}

TEST(Augment, EachChannelHasItsOwnScale) {
  const auto plane = noise_image(64);
  auto pixels = plane;
  for (int channel = 1; channel < 3; ++channel) pixels.insert(pixels.end(), plane.begin(), plane.end());
  AugmentOptions options{.affine = 0.2, .shift = 0.3, .blur = 1, .background = 40};
  options.normalization = {{0, 0.25, 0.5}, {1, 2, 0.5}};
  for (const auto& one : {options, no_augmentation()}) {
    auto scaled = one;
    scaled.normalization = options.normalization;
    const auto out = augment(scaled, {3, 8, 8}, pixels);
    for (size_t i = 0; i < 64; ++i) {
      EXPECT_NEAR(out[64 + i], (out[i] - 0.25) / 2, 1e-6);
      EXPECT_NEAR(out[128 + i], (out[i] - 0.5) / 0.5, 1e-6);
    }
  }
}

TEST(Augment, DependsOnThePositionAlone) {
  const AugmentOptions options{.blur = 0.5, .noise = 0.1};
  const auto pixels = noise_image(256);
  EXPECT_EQ(augment(options, {1, 16, 16}, pixels, 4), augment(options, {1, 16, 16}, pixels, 4));
  EXPECT_NE(augment(options, {1, 16, 16}, pixels, 4), augment(options, {1, 16, 16}, pixels, 5));
  // Scratch memory of an earlier image leaves no trace.
  Augmenter augmenter(options, {1, 16, 16});
  std::vector<float> out(256);
  for (uint64_t position : {9, 4}) {
    CounterRng rng(7, 3, position);
    augmenter(pixels, rng, out.data());
  }
  EXPECT_EQ(out, augment(options, {1, 16, 16}, pixels, 4));
}

TEST(Augment, DrawsHaveTheDeviationsAskedFor) {
  CounterRng rng(1, 2);
  const int draws = 4000;
  double entries = 0, furthest_entry = 0, shifts = 0, furthest_shift = 0;
  for (int i = 0; i < draws; ++i) {
    const auto affine = draw_affine({.affine = 0.08, .shift = 0.06}, 20, 40, rng);
    for (const double departure : {affine.xx - 1, affine.xy, affine.yx, affine.yy - 1}) {
      entries += departure * departure / (4.0 * draws);
      furthest_entry = std::max(furthest_entry, std::abs(departure));
    }
    EXPECT_LE(std::abs(affine.y0), 0.06 * 20);
    shifts += affine.x0 * affine.x0 / draws;
    furthest_shift = std::max(furthest_shift, std::abs(affine.x0));
  }
  EXPECT_NEAR(std::sqrt(entries), 0.08, 0.002);
  EXPECT_NEAR(furthest_entry, 3 * 0.08, 1e-3);  // the cut
  EXPECT_NEAR(std::sqrt(shifts), 0.06 * 40 / std::sqrt(3.0), 0.05);
  EXPECT_NEAR(furthest_shift, 0.06 * 40, 0.01);
}

TEST(Augment, NoiseHasMeanZeroAndItsDeviation) {
  auto options = no_augmentation();
  options.noise = 0.1;
  const std::vector<uint8_t> grey(128 * 128, 128);
  const auto out = augment(options, {1, 128, 128}, grey);
  const double before = (128 / 255.0 - 0.5) / 0.5;
  double mean = 0, square = 0;
  for (const float value : out) {
    mean += (value - before) / static_cast<double>(out.size());
    square += (value - before) * (value - before) / static_cast<double>(out.size());
  }
  EXPECT_NEAR(mean, 0, 0.005);
  EXPECT_NEAR(std::sqrt(square), 0.2, 0.005);  // 0.1 of white - black, which is 2 after scaling
}

TEST(Augment, BlurSpreadsInkAndKeepsItsSum) {
  auto options = no_augmentation();
  options.blur = 1, options.normalization = {{0}, {1}};
  std::vector<uint8_t> dot(81, 0);
  dot[40] = 255;
  const auto out = augment(options, {1, 9, 9}, dot);
  EXPECT_NEAR(std::accumulate(out.begin(), out.end(), 0.0), 1, 1e-5);
  EXPECT_LT(out[40], 1);
  EXPECT_GT(out[39], 0);
  EXPECT_FLOAT_EQ(out[39], out[41]);
  EXPECT_FLOAT_EQ(out[39], out[31]);
  EXPECT_NEAR(out[40] * out[30], out[39] * out[31], 1e-6);  // a product of two passes
  EXPECT_EQ(out[38], 0);
}

/// Each place of a padded crop is as likely as any other, and each result is a part of the padded image.
TEST(Augment, APaddedCropIsAPartOfThePaddedImage) {
  constexpr int64_t kHeight = 5, kWidth = 7, kPadding = 2, kDraws = 4000;
  const auto pixels = noise_image(kHeight * kWidth);
  auto options = no_augmentation();
  options.crop_padding = kPadding;
  options.background = 9;
  const auto part_at = [&](int64_t right, int64_t down) {
    std::vector<uint8_t> part;
    for (int64_t y = down; y < kHeight + down; ++y) {
      for (int64_t x = right; x < kWidth + right; ++x) {
        const bool inside = x >= 0 && x < kWidth && y >= 0 && y < kHeight;
        part.push_back(inside ? pixels[static_cast<size_t>(y * kWidth + x)] : options.background);
      }
    }
    return augment(no_augmentation(), {1, kHeight, kWidth}, part);
  };
  std::map<std::vector<float>, int64_t> times;
  for (int64_t i = 0; i < kDraws; ++i) {
    ++times[augment(options, {1, kHeight, kWidth}, pixels, static_cast<uint64_t>(i))];
  }
  EXPECT_EQ(times.size(), 25U);
  for (int64_t down = -kPadding; down <= kPadding; ++down) {
    for (int64_t right = -kPadding; right <= kPadding; ++right) {
      EXPECT_NEAR(static_cast<double>(times[part_at(right, down)]), kDraws / 25.0, 60);  // 5 deviations
    }
  }
}

/// The square's middle is at each pixel as often as at any other.
TEST(Augment, ACutoutIsASquareOfZeros) {
  constexpr int64_t kHeight = 5, kWidth = 7, kDraws = 7000;
  const std::vector<uint8_t> pixels(2 * kHeight * kWidth, 200);
  for (const int64_t side : {1, 4, 6, 100}) {
    auto options = no_augmentation();
    options.cutout = side;
    const float whole = augment(no_augmentation(), {2, kHeight, kWidth}, pixels)[0];
    const auto cut_at = [&](int64_t y, int64_t x) {
      std::vector<float> wanted(pixels.size(), whole);
      for (int64_t i = 0; i < std::ssize(wanted); ++i) {
        const int64_t down = i / kWidth % kHeight - (y - side / 2), right = i % kWidth - (x - side / 2);
        if (down >= 0 && down < side && right >= 0 && right < side) wanted[static_cast<size_t>(i)] = 0;
      }
      return wanted;
    };
    std::map<std::vector<float>, int64_t> wanted, times;
    for (int64_t i = 0; i < kHeight * kWidth; ++i) ++wanted[cut_at(i / kWidth, i % kWidth)];
    for (int64_t i = 0; i < kDraws; ++i) {
      ++times[augment(options, {2, kHeight, kWidth}, pixels, static_cast<uint64_t>(i))];
    }
    EXPECT_EQ(times.size(), wanted.size());
    for (const auto& [image, places] : wanted) {
      const double expected = static_cast<double>(kDraws * places) / (kHeight * kWidth);
      EXPECT_NEAR(static_cast<double>(times[image]), expected, 5 * std::sqrt(expected)) << side;
    }
  }
}

TEST(Augment, WrongOptionsAreTold) {
  const auto told = [](AugmentOptions options) {
    return text_of<SettingsError>([&] { Augmenter(options, {1, 8, 8}); });
  };
  EXPECT_EQ(told({.affine = -1}), "affine is -1.000000, wanted 0..0.3");
  EXPECT_EQ(told({.shift = 2}), "shift is 2.000000, wanted 0..1");
  EXPECT_EQ(told({.blur = 1.5}), "blur is 1.500000, wanted 0..1");
  EXPECT_EQ(told({.blur_sigma = 0}), "blur_sigma is 0.000000, wanted 0.3..10");
  EXPECT_EQ(told({.noise = NAN}), "noise is nan, wanted 0..1");
  EXPECT_EQ(told({.crop_padding = -1}), "crop_padding is -1, wanted 0..1024");
  EXPECT_EQ(told({.cutout = 1025}), "cutout is 1025, wanted 0..1024");
  EXPECT_EQ(told({.normalization = {{NAN}, {1}}}), "mean is nan, wanted a number");
  EXPECT_EQ(told({.normalization = {{0}, {0}}}), "deviation is 0.000000, wanted a number over 0");
  EXPECT_EQ(told({.normalization = {{0, 0}, {1}}}), "mean has 2 numbers, wanted 1");
}

}  // namespace
}  // namespace tandem::data
