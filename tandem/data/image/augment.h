#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/base/rng.h"
#include "tandem/data/preprocessing.h"

namespace tandem::data {

/// What happens to an image between the data set's bytes and the model's floats.
struct AugmentOptions {
  double random_crop = 0;  // least share of the area of a part that takes the picture's place; 0: the whole picture
  double affine =
      0.08;  // each entry of the 2x2 matrix departs from the identity by normal(0, affine), cut at 3 deviations
  double shift = 0.06;       // each axis moves by uniform(-shift, shift) of its side
  int64_t crop_padding = 0;  // pixels of background around an image, out of which a part of its size is cut
  double flip = 0;           // probability that an image is mirrored, left for right
  double blur = 0;           // probability that an image is blurred (Gaussian, 3x3)
  double blur_sigma = 1.0;   // largest sigma in pixels; drawn uniformly from 0.3 up
  double noise = 0;          // deviation of the noise added to each value, in units of white - black
  int64_t cutout = 0;        // side in pixels of a square, cut at the edges, whose values become 0, the mean; 0: none
  uint8_t background = 0;    // byte outside the image, in every channel
  Normalization normalization = {};
};

/// Converts bytes to floats and does nothing else: for evaluation.
AugmentOptions no_augmentation();

/// Maps a pixel of the result to a place in the source, both counted in pixels from the image's centre:
/// source = (xx x + xy y + x0, yx x + yy y + y0).
struct Affine {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;

  bool operator==(const Affine&) const = default;
};

/// Draws a random transform for images of height by width. Draws no number for an option that is 0.
Affine draw_affine(const AugmentOptions& options, int64_t height, int64_t width, CounterRng& rng);

/// Augments images of one shape; options.random_crop is the affair of who reads them. Holds scratch memory, so each
/// thread needs its own.
class Augmenter {
 public:
  /// Throws SettingsError if an option is out of range: affine 0..0.3, random_crop, shift, flip, blur and noise 0..1,
  /// crop_padding and cutout 0..1024, blur_sigma 0.3..10, and as Normalization::check() does.
  Augmenter(const AugmentOptions& options, std::array<int64_t, 3> shape);

  /// pixels: channels * height * width bytes; out: as many floats. The result depends on `pixels` and `rng` alone.
  void operator()(std::span<const uint8_t> pixels, CounterRng& rng, float* out);

  /// Applies one transform, bilinear, with the background outside: the middle step of operator().
  void transform(std::span<const uint8_t> pixels, const Affine& affine, float* out);

 private:
  float background_of(size_t channel) const;
  void pad(const uint8_t* plane, size_t channel);
  void sample_row(const Affine& affine, int64_t y, float* out);
  void blur(double sigma, float* out);
  void add_noise(CounterRng& rng, float* out) const;
  void cut_out(CounterRng& rng, float* out) const;

  AugmentOptions options_;
  int64_t channels_, height_, width_, stride_;
  std::vector<ChannelScale> scales_;
  std::vector<float> padded_;  // one plane with a border of background
  std::vector<int32_t> place_;
  std::vector<float> right_, down_;
};

}  // namespace tandem::data
