#include "tandem/data/image/augment.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "tandem/base/error.h"

namespace tandem::data {
namespace {

constexpr double kCut = 3;           // deviations, so that no draw turns an image inside out
constexpr double kLeastSigma = 0.3;  // pixels; less changes nothing
constexpr int64_t kMostPixels = 1024;
constexpr int64_t kBorder = 2;  // a place one pixel outside of the image still reads two background pixels

void check(bool good, const char* name, double value, const char* wanted) {
  if (!good) throw SettingsError(std::string(name) + " is " + std::to_string(value) + ", wanted " + wanted);
}

void check(const AugmentOptions& options) {
  const auto in = [](double value, double low, double high) { return value >= low && value <= high; };
  check(in(options.random_crop, 0, 1), "random_crop", options.random_crop, "0..1");
  check(in(options.affine, 0, 0.3), "affine", options.affine, "0..0.3");
  check(in(options.shift, 0, 1), "shift", options.shift, "0..1");
  check(in(options.flip, 0, 1), "flip", options.flip, "0..1");
  check(in(options.blur, 0, 1), "blur", options.blur, "0..1");
  check(in(options.blur_sigma, kLeastSigma, 10), "blur_sigma", options.blur_sigma, "0.3..10");
  check(in(options.noise, 0, 1), "noise", options.noise, "0..1");
  const std::pair<const char*, int64_t> lengths[] = {{"crop_padding", options.crop_padding},
                                                     {"cutout", options.cutout}};
  for (const auto& [name, pixels] : lengths) {
    if (pixels >= 0 && pixels <= kMostPixels) continue;
    throw SettingsError(std::string(name) + " is " + std::to_string(pixels) + ", wanted 0.." +
                        std::to_string(kMostPixels));
  }
}

/// 0 .. count - 1.
int64_t draw_place(int64_t count, CounterRng& rng) {
  return static_cast<int64_t>(rng.uniform() * static_cast<double>(count));
}

/// Approximately normal noise from one word: the sum of its four bytes, shifted and scaled to mean 0 and deviation 1;
/// at most 3.5 in size.
float noise_of(uint32_t word) {
  const uint32_t sum = (word & 0xFF) + ((word >> 8) & 0xFF) + ((word >> 16) & 0xFF) + (word >> 24);
  constexpr float kDeviation = 147.8016F;  // sqrt(4 (256^2 - 1) / 12)
  return (static_cast<float>(sum) - 510.0F) / kDeviation;
}

}  // namespace

AugmentOptions no_augmentation() {
  return {.random_crop = 0, .affine = 0, .shift = 0, .flip = 0, .blur = 0, .noise = 0};
}

Affine draw_affine(const AugmentOptions& options, int64_t height, int64_t width, CounterRng& rng) {
  Affine affine;
  if (options.affine > 0) {
    for (double* entry : {&affine.xx, &affine.xy, &affine.yx, &affine.yy}) {
      *entry += options.affine * std::clamp(rng.normal(), -kCut, kCut);
    }
  }
  if (options.shift > 0) {
    affine.x0 = rng.uniform(-options.shift, options.shift) * static_cast<double>(width);
    affine.y0 = rng.uniform(-options.shift, options.shift) * static_cast<double>(height);
  }
  if (options.crop_padding > 0) {
    for (double* place : {&affine.x0, &affine.y0}) {
      *place += static_cast<double>(draw_place(2 * options.crop_padding + 1, rng) - options.crop_padding);
    }
  }
  if (options.flip > 0 && rng.uniform() < options.flip) {
    affine.xx = -affine.xx, affine.xy = -affine.xy, affine.x0 = -affine.x0;
  }
  return affine;
}

Augmenter::Augmenter(const AugmentOptions& options, std::array<int64_t, 3> shape)
    : options_(options), channels_(shape[0]), height_(shape[1]), width_(shape[2]), stride_(width_ + 2 * kBorder) {
  check(options);
  scales_ = channel_scales(options.normalization, channels_);
  padded_.resize(static_cast<size_t>(stride_ * (height_ + 2 * kBorder)));
  const auto width = static_cast<size_t>(width_);
  place_.resize(width);
  right_.resize(width);
  down_.resize(width);
}

void Augmenter::operator()(std::span<const uint8_t> pixels, CounterRng& rng, float* out) {
  const Affine affine = draw_affine(options_, height_, width_, rng);
  transform(pixels, affine, out);
  if (options_.blur > 0 && rng.uniform() < options_.blur) blur(rng.uniform(kLeastSigma, options_.blur_sigma), out);
  if (options_.noise > 0) add_noise(rng, out);
  if (options_.cutout > 0) cut_out(rng, out);
}

void Augmenter::transform(std::span<const uint8_t> pixels, const Affine& affine, float* out) {
  const int64_t plane = height_ * width_;
  for (int64_t channel = 0; channel < channels_; ++channel) {
    const auto from = pixels.subspan(static_cast<size_t>(channel * plane), static_cast<size_t>(plane));
    if (affine == Affine{}) {
      convert(from, scales_[static_cast<size_t>(channel)], out + channel * plane);
      continue;
    }
    pad(from.data(), static_cast<size_t>(channel));
    for (int64_t y = 0; y < height_; ++y) sample_row(affine, y, out + channel * plane + y * width_);
  }
}

float Augmenter::background_of(size_t channel) const {
  return static_cast<float>(options_.background) * scales_[channel].factor + scales_[channel].offset;
}

void Augmenter::pad(const uint8_t* plane, size_t channel) {
  std::ranges::fill(padded_, background_of(channel));
  for (int64_t y = 0; y < height_; ++y) {
    const std::span row(plane + y * width_, static_cast<size_t>(width_));
    convert(row, scales_[channel], padded_.data() + (y + kBorder) * stride_ + kBorder);
  }
}

/// Two loops. The first is pure arithmetic, so the compiler vectorises it. The second reads four neighbours without a
/// bounds check, because the first clamps places to the border of background.
void Augmenter::sample_row(const Affine& affine, int64_t y, float* out) {
  const double middle_x = static_cast<double>(width_ - 1) / 2, middle_y = static_cast<double>(height_ - 1) / 2;
  const double v = static_cast<double>(y) - middle_y;
  // Counted in the padded plane, at result column 0.
  const auto first_x = static_cast<float>(affine.xy * v + affine.x0 - affine.xx * middle_x + middle_x + kBorder);
  const auto first_y = static_cast<float>(affine.yy * v + affine.y0 - affine.yx * middle_x + middle_y + kBorder);
  const auto step_x = static_cast<float>(affine.xx), step_y = static_cast<float>(affine.yx);
  const float low = kBorder - 1, high_x = static_cast<float>(width_ + kBorder),
              high_y = static_cast<float>(height_ + kBorder);
  const auto stride = static_cast<int32_t>(stride_), width = static_cast<int32_t>(width_);
  int32_t* place = place_.data();
  float *right = right_.data(), *down = down_.data();
  for (int32_t x = 0; x < width; ++x) {
    const auto column = static_cast<float>(x);
    const float at_x = std::min(std::max(first_x + step_x * column, low), high_x);
    const float at_y = std::min(std::max(first_y + step_y * column, low), high_y);
    const auto whole_x = static_cast<int32_t>(at_x), whole_y = static_cast<int32_t>(at_y);
    place[x] = whole_y * stride + whole_x;
    right[x] = at_x - static_cast<float>(whole_x);
    down[x] = at_y - static_cast<float>(whole_y);
  }
  const float* source = padded_.data();
  for (int32_t x = 0; x < width; ++x) {
    const float* corner = source + place[x];
    const float upper = corner[0] + right[x] * (corner[1] - corner[0]);
    const float lower = corner[stride] + right[x] * (corner[stride + 1] - corner[stride]);
    out[x] = upper + down[x] * (lower - upper);
  }
}

void Augmenter::blur(double sigma, float* out) {
  const double side = std::exp(-0.5 / (sigma * sigma));
  const auto middle = static_cast<float>(1 / (1 + 2 * side)), outer = static_cast<float>(side / (1 + 2 * side));
  const auto pass = [&](float* first, int64_t count, int64_t step, float background) {
    float before = background, here = first[0];
    for (int64_t i = 0; i < count; ++i) {
      const float after = i + 1 < count ? first[(i + 1) * step] : background;
      first[i * step] = outer * (before + after) + middle * here;
      before = here;
      here = after;
    }
  };
  for (int64_t channel = 0; channel < channels_; ++channel) {
    float* plane = out + channel * height_ * width_;
    const float background = background_of(static_cast<size_t>(channel));
    for (int64_t y = 0; y < height_; ++y) pass(plane + y * width_, width_, 1, background);
    for (int64_t x = 0; x < width_; ++x) pass(plane + x, height_, width_, background);
  }
}

void Augmenter::add_noise(CounterRng& rng, float* out) const {
  const auto& all = options_.normalization.deviation;
  const int64_t plane = height_ * width_;
  for (int64_t channel = 0; channel < channels_; ++channel) {
    const auto deviation =
        static_cast<float>(options_.noise / (all.size() == 1 ? all[0] : all[static_cast<size_t>(channel)]));
    for (int64_t i = 0; i < plane; ++i) out[channel * plane + i] += deviation * noise_of(rng.next());
  }
}

/// The middle may be at any pixel.
void Augmenter::cut_out(CounterRng& rng, float* out) const {
  const int64_t first_y = draw_place(height_, rng) - options_.cutout / 2;
  const int64_t first_x = draw_place(width_, rng) - options_.cutout / 2;
  const int64_t left = std::max<int64_t>(first_x, 0), right = std::min(first_x + options_.cutout, width_);
  const int64_t top = std::max<int64_t>(first_y, 0), bottom = std::min(first_y + options_.cutout, height_);
  for (int64_t channel = 0; channel < channels_; ++channel) {
    for (int64_t y = top; y < bottom; ++y) {
      float* row = out + (channel * height_ + y) * width_;
      std::fill(row + left, row + right, 0.0F);
    }
  }
}

}  // namespace tandem::data
