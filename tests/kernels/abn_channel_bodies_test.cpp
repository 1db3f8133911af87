#include "tandem/kernels/grid/abn_channel_bodies.h"

#include <gtest/gtest.h>

#include <vector>

#include "tandem/kernels/grid/abn_grid.h"
#include "tests/kernels/grids.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kRows = 23, kChannels = 5;
constexpr double kEpsilon = 1e-5, kLeast = 1e-2;

/// Batch normalisation of kRows rows, by the passes of a grid.
struct Normalization {
  using Numbers = std::vector<double>;

  Numbers x = drawn_as<double>(1, kRows*kChannels, 3), gradient = drawn_as<double>(2, kRows*kChannels, 1);
  Numbers weight = {1.5, -0.7, 1e-3, -1e-3, 2}, bias = drawn_as<double>(4, kChannels, 1);
  Numbers mean = Numbers(kChannels), inverse = mean, g = mean, kept_bias = mean, kept_inverse = mean, scale = mean,
          offset = mean, zero = mean, sum = mean, product = mean, weight_gradient = mean, bias_gradient = mean,
          factor = mean, by_bias = mean, by_weight = mean, slope = mean, shift = mean, z = x, dx = x;
  std::vector<uint8_t> sides = std::vector<uint8_t>(kRows * side_bytes(kChannels));
  AbnChannels kept{g.data(), kept_bias.data(), kept_inverse.data()};

  Normalization() {
    for (int64_t i = 0; i < kRows * kChannels; ++i) mean[i % kChannels] += x[i] / kRows;
    Numbers variance(kChannels);
    for (int64_t i = 0; i < kRows * kChannels; ++i) {
      const double far = x[i] - mean[i % kChannels];
      variance[i % kChannels] += far * far / kRows;
    }
    for (int64_t c = 0; c < kChannels; ++c) inverse[c] = 1 / std::sqrt(variance[c] + kEpsilon);
  }

  void forward(HostGrid& grid, Invertible kind) {
    grid.for_each(kChannels, AbnScaleBody<double>{weight.data(), bias.data(), mean.data(), inverse.data(), kLeast, kept,
                                                  scale.data(), offset.data()});
    abn_forward_on(grid, AbnForward<double>{kind, 0.01, scale.data(), offset.data()}, kRows, kChannels, z.data(),
                   sides.data());
  }

  void backward(HostGrid& grid, Invertible kind, bool centred, double rows) {
    const AbnBackward<double> in{
        kind, 0.01, z.data(), gradient.data(), sides.data(), (centred ? kept_bias : zero).data()};
    abn_gradient_sums_on(grid, in, kRows, kChannels, {}, sum.data(), product.data(), nullptr);
    grid.for_each(kChannels,
                  AbnParameterBody<double>{kept, centred, sum.data(), product.data(), weight_gradient.data(),
                                           bias_gradient.data(), factor.data(), by_bias.data(), by_weight.data()});
    grid.for_each(kChannels, AbnShiftBody<double>{kept, centred, rows, by_bias.data(), by_weight.data(), slope.data(),
                                                  shift.data()});
    abn_gradient_apply_on(grid, in, {factor.data(), slope.data(), shift.data()}, kRows, kChannels, dx.data());
  }
};

/// Expects the gradients of batch normalisation, from its definition: xh = (x - mean) r, y = g xh + bias.
void expect_gradients(const Normalization& own, bool training) {
  for (int64_t c = 0; c < kChannels; ++c) {
    const double g = std::copysign(std::max(std::abs(own.weight[c]), kLeast), own.weight[c]), r = own.inverse[c];
    double mean_dy = 0, mean_product = 0;
    const auto normal = [&](int64_t i) { return (own.x[i] - own.mean[c]) * r; };
    const auto dy = [&](int64_t i) {
      const double y = g * normal(i) + own.bias[c], s = 1 / (1 + std::exp(-y));
      return own.gradient[i] * s * (1 + y * (1 - s));
    };
    for (int64_t i = c; i < kRows * kChannels; i += kChannels) {
      mean_dy += dy(i) / kRows;
      mean_product += dy(i) * normal(i) / kRows;
    }
    EXPECT_NEAR(own.bias_gradient[c], mean_dy * kRows, 1e-10);
    EXPECT_NEAR(own.weight_gradient[c], mean_product * kRows, 1e-9);
    for (int64_t i = c; i < kRows * kChannels; i += kChannels) {
      const double less = training ? mean_dy + normal(i) * mean_product : 0;
      EXPECT_NEAR(own.dx[i], g * r * (dy(i) - less), 1e-9) << "channel " << c;
    }
  }
}

TEST(AbnChannelBodies, GiveTheGradientsOfBatchNormalisationInBothForms) {
  for (const int threads : kGridThreads) {
    for (const bool centred : {false, true}) {
      for (const bool training : {false, true}) {
        HostGrid grid(threads);
        Normalization own;
        own.forward(grid, Invertible::swish);
        own.backward(grid, Invertible::swish, centred, training ? kRows : 0);
        expect_gradients(own, training);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
