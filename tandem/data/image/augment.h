#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/base/rng.h"

namespace tandem::data {

/// What happens to an image between the data set's bytes and the model's floats.
struct AugmentOptions {
  double affine =
      0.08;  // each entry of the 2x2 matrix departs from the identity by normal(0, affine), cut at 3 deviations
  double shift = 0.06;                 // each axis moves by uniform(-shift, shift) sides
  double blur = 0;                     // chance that an image is blurred (Gaussian, 3x3)
  double blur_sigma = 1.0;             // pixels, the strongest; drawn uniformly from 0.3 up
  double noise = 0;                    // deviation of the noise added to each value, in units of white - black
  double mean = 0.5, deviation = 0.5;  // value = (byte / 255 - mean) / deviation: -1..1 as it stands
  uint8_t background = 0;              // what lies outside the image
};

/// Only byte to float: for evaluation.
AugmentOptions no_augmentation();

/// From a pixel of the result to a place in the source, both counted in pixels from the image's centre:
/// source = (xx x + xy y + x0, yx x + yy y + y0).
struct Affine {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;

  bool operator==(const Affine&) const = default;
};

/// The next random transform for images of height by width. Draws nothing for what is 0.
Affine draw_affine(const AugmentOptions& options, int64_t height, int64_t width, CounterRng& rng);

/// Augments images of one shape. Holds scratch memory, so each thread has its own.
class Augmenter {
 public:
  /// Throws SettingsError: a negative or not finite number, blur over 1, deviation 0.
  Augmenter(const AugmentOptions& options, std::array<int64_t, 3> shape);

  /// pixels: channels * height * width bytes; out: as many floats. What happens is a function of `rng` alone.
  void operator()(std::span<const uint8_t> pixels, CounterRng& rng, float* out);

  /// One transform, bilinear, background outside: the middle part of the above.
  void transform(std::span<const uint8_t> pixels, const Affine& affine, float* out);

 private:
  void convert(const uint8_t* pixels, int64_t count, float* out) const;
  void pad(const uint8_t* plane);
  void sample_row(const Affine& affine, int64_t y, float* out);
  void blur(double sigma, float* out);
  void add_noise(CounterRng& rng, float* out) const;

  AugmentOptions options_;
  int64_t channels_, height_, width_, stride_;
  float scale_, offset_;       // value = byte * scale + offset
  std::vector<float> padded_;  // one plane with a border of background
  std::vector<int32_t> place_;
  std::vector<float> right_, down_;
};

}  // namespace tandem::data
