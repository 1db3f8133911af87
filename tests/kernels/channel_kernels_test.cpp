#include "tandem/kernels/channel_kernels.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/rng.h"

#include "tests/kernels/every_cpu.h"

namespace tandem::kernels {
namespace {

class ChannelKernels : public EveryCpu {};
INSTANTIATE_TEST_SUITE_P(Cpus, ChannelKernels, testing::ValuesIn(cpu::available()), cpu_name);

constexpr int64_t kRows = 13, kChannels = 3 * kLanes;

std::vector<float> drawn(uint64_t seed, float offset = 0) {
  CounterRng rng(1, seed, 0);
  std::vector<float> values(kRows * kChannels);
  for (auto& value : values) value = offset + static_cast<float>(rng.uniform(-1, 1));
  return values;
}

TEST_P(ChannelKernels, MomentsAreThoseOfTheDifferenceToTheFirstRow) {
  const auto x = drawn(1, 1e4F);
  std::vector<float> sum(kChannels), square(kChannels);
  moments(x.data(), kRows, kChannels, sum.data(), square.data());
  for (int64_t c = 0; c < kChannels; ++c) {
    double own_sum = 0, own_square = 0;
    for (int64_t r = 0; r < kRows; ++r) {
      const double difference = x[r * kChannels + c] - x[c];
      own_sum += difference;
      own_square += difference * difference;
    }
    EXPECT_NEAR(sum[c], own_sum, 1e-4);
    EXPECT_NEAR(square[c], own_square, 1e-4);
  }
}

TEST_P(ChannelKernels, ScaleShiftAddsTheResidualBeforeTheRectifier) {
  const auto x = drawn(1), residual = drawn(2), scale = drawn(3), offset = drawn(4);
  std::vector<float> y(kRows * kChannels);
  for (const bool relu : {false, true}) {
    for (const float* added : {static_cast<const float*>(nullptr), residual.data()}) {
      scale_shift(x.data(), added, scale.data(), offset.data(), relu, kRows, kChannels, y.data());
      for (int64_t i = 0; i < kRows * kChannels; ++i) {
        const float value = x[i] * scale[i % kChannels] + offset[i % kChannels] + (added != nullptr ? added[i] : 0);
        EXPECT_NEAR(y[i], relu ? std::max(value, 0.F) : value, 1e-6);
      }
    }
  }
}

TEST_P(ChannelKernels, TheGradientPassesWhereTheOutputIsPositive) {
  const auto x = drawn(1), grad = drawn(2), y = drawn(3), mean = drawn(4);
  const Backward<float> in = {
      .mask = Mask::output, .grad = grad.data(), .x = x.data(), .y = y.data(), .mean = mean.data()};
  std::vector<float> sum(kChannels), product(kChannels), masked(kRows * kChannels);
  gradient_moments(in, kRows, kChannels, sum.data(), product.data(), masked.data());
  for (int64_t c = 0; c < kChannels; ++c) {
    double own_sum = 0, own_product = 0;
    for (int64_t i = c; i < kRows * kChannels; i += kChannels) {
      const float g = y[i] > 0 ? grad[i] : 0;
      EXPECT_EQ(masked[i], g);
      own_sum += g;
      own_product += static_cast<double>(g) * (x[i] - mean[c]);
    }
    EXPECT_NEAR(sum[c], own_sum, 1e-5);
    EXPECT_NEAR(product[c], own_product, 1e-5);
  }
}

}  // namespace
}  // namespace tandem::kernels
