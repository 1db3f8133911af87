#include "tandem/kernels/abn_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "tandem/base/rng.h"

#include "tests/kernels/definitions.h"
#include "tests/kernels/every_cpu.h"

namespace tandem::kernels {
namespace {

class AbnKernels : public EveryCpu {};
INSTANTIATE_TEST_SUITE_P(Cpus, AbnKernels, testing::ValuesIn(cpu::available()), cpu_name);

constexpr std::array kKinds = {Invertible::identity, Invertible::leaky_relu, Invertible::elu, Invertible::swish};

template <class T>
std::vector<T> drawn(uint64_t seed, int64_t count, double width) {
  CounterRng rng(1, seed, 0);
  std::vector<T> values(count);
  for (auto& value : values) value = static_cast<T>(rng.uniform(-width, width));
  return values;
}

template <class T>
struct Rows {
  int64_t rows, channels;
  std::vector<T> x = drawn<T>(1, rows*channels, 5), gradient = drawn<T>(2, rows*channels, 1),
                 scale = drawn<T>(3, channels, 2), offset = drawn<T>(4, channels, 1), centre = offset;
  std::vector<T> z = x;
  std::vector<uint8_t> sides = std::vector<uint8_t>(rows * side_bytes(channels));

  long double y(int64_t i) const { return scale[i % channels] * static_cast<long double>(x[i]) + offset[i % channels]; }
  AbnBackward<T> backward(Invertible kind) const {
    return {kind, T(kSlope), z.data(), gradient.data(), sides.data(), centre.data()};
  }
};

template <class T>
void expect_forward_and_backward(int64_t channels, double tolerance) {
  for (const auto kind : kKinds) {
    Rows<T> all{13, channels};
    abn_forward({kind, T(kSlope), all.scale.data(), all.offset.data()}, 13, channels, all.z.data(), all.sides.data());
    const auto in = all.backward(kind);
    std::vector<double> sum(channels), product(channels), wide(channels), wide_product(channels);
    abn_gradient_sums(in, false, 13, channels, sum.data(), product.data());
    abn_gradient_sums(in, true, 13, channels, wide.data(), wide_product.data());
    const auto factor = drawn<T>(5, channels, 1), slope = drawn<T>(6, channels, 1e-3), shift = drawn<T>(7, channels, 1);
    auto out = all.gradient;  // over itself
    auto same = in;
    same.gradient = out.data();
    abn_gradient_apply(same, {factor.data(), slope.data(), shift.data()}, 13, channels, out.data());
    std::vector<long double> own_sum(channels), own_product(channels);
    for (int64_t i = 0; i < 13 * channels; ++i) {
      const auto c = i % channels;
      const auto y = all.y(i), dy = all.gradient[i] * slope_of(kind, y);
      EXPECT_NEAR(all.z[i], value_of(kind, y), tolerance);
      EXPECT_NEAR(out[i], dy * factor[c] + (y - all.centre[c]) * slope[c] + shift[c], tolerance);
      own_sum[c] += dy;
      own_product[c] += dy * (y - all.centre[c]);
    }
    for (int64_t c = 0; c < channels; ++c) {
      EXPECT_NEAR(sum[c], own_sum[c], 10 * tolerance);
      EXPECT_NEAR(wide[c], own_sum[c], 10 * tolerance);
      EXPECT_NEAR(product[c], own_product[c], 100 * tolerance);
      EXPECT_NEAR(wide_product[c], own_product[c], 100 * tolerance);
    }
  }
}

TEST_P(AbnKernels, EqualTheDefinitionsForAnyNumberOfChannels) {
  for (const int64_t channels : {1, 7, 16, 19, 48}) {
    expect_forward_and_backward<double>(channels, 1e-13);
    expect_forward_and_backward<float>(channels, 2e-5);
  }
}

template <class T>
void expect_the_bits_of_two_inversions(int64_t channels, bool wide) {
  Rows<T> all{13, channels};
  abn_forward({Invertible::swish, T(0), all.scale.data(), all.offset.data()}, 13, channels, all.z.data(),
              all.sides.data());
  const auto in = all.backward(Invertible::swish);
  const auto factor = drawn<T>(5, channels, 1), slope = drawn<T>(6, channels, 1e-3), shift = drawn<T>(7, channels, 1);
  const AbnApply<T> how{factor.data(), slope.data(), shift.data()};
  std::vector<double> sum(channels), product(channels), own_sum(channels), own_product(channels);
  abn_gradient_sums(in, wide, 13, channels, sum.data(), product.data());
  std::vector<T> out(all.z.size());
  abn_gradient_apply(in, how, 13, channels, out.data());

  T *y = all.z.data(), *dy = all.gradient.data();  // over themselves
  abn_unfold_swish(in, wide, 13, channels, own_sum.data(), own_product.data(), {y, dy});
  abn_gradient_apply({Invertible::identity, T(1), y, dy, nullptr, all.centre.data()}, how, 13, channels, dy);
  EXPECT_EQ(own_sum, sum);
  EXPECT_EQ(own_product, product);
  EXPECT_EQ(all.gradient, out);
  const double error = sizeof(T) == 4 ? 1e-3 : 1e-7;  // at the minimum
  for (int64_t i = 0; i < 13 * channels; ++i) EXPECT_NEAR(y[i], all.y(i), error);
}

TEST_P(AbnKernels, UnfoldedSwishGivesTheBitsOfTwoInversions) {
  for (const int64_t channels : {1, 7, 16, 19, 48}) {
    for (const bool wide : {false, true}) {
      expect_the_bits_of_two_inversions<double>(channels, wide);
      expect_the_bits_of_two_inversions<float>(channels, wide);
    }
  }
}

float widened(uint16_t half) { return std::bit_cast<float>(static_cast<uint32_t>(half) << 16); }

/// To the nearest, ties to even.
uint16_t rounded(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

std::vector<uint16_t> rounded(const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (const float value : values) halves.push_back(rounded(value));
  return halves;
}

std::vector<float> widened(const std::vector<uint16_t>& halves) {
  std::vector<float> values;
  for (const auto half : halves) values.push_back(widened(half));
  return values;
}

TEST_P(AbnKernels, Bfloat16IsFloatRounded) {
  for (const int64_t channels : {1, 7, 16, 19, 48}) {
    for (const auto kind : kKinds) {
      Rows<float> all{13, channels};
      auto halves = rounded(all.x);
      all.z = widened(halves);
      std::vector<double> sum(channels), square(channels), own_sum(channels), own_square(channels);
      abn_moments(all.z.data(), 13, channels, sum.data(), square.data());
      abn_moments(halves.data(), 13, channels, own_sum.data(), own_square.data());
      EXPECT_EQ(own_sum, sum);
      EXPECT_EQ(own_square, square);

      const AbnForward<float> how{kind, float(kSlope), all.scale.data(), all.offset.data()};
      auto sides = all.sides;
      abn_forward(how, 13, channels, all.z.data(), all.sides.data());
      abn_forward(how, 13, channels, halves.data(), sides.data());
      EXPECT_EQ(halves, rounded(all.z));
      EXPECT_EQ(sides, all.sides);

      const auto gradients = rounded(all.gradient);
      all.z = widened(halves);
      all.gradient = widened(gradients);
      const auto in = all.backward(kind);
      const AbnBackward<uint16_t> own{kind,         float(kSlope),    halves.data(), gradients.data(),
                                      sides.data(), all.centre.data()};
      for (const bool wide : {false, true}) {
        abn_gradient_sums(in, wide, 13, channels, sum.data(), square.data());
        abn_gradient_sums(own, wide, 13, channels, own_sum.data(), own_square.data());
        EXPECT_EQ(own_sum, sum);
        EXPECT_EQ(own_square, square);
      }
      const auto apply = drawn<float>(5, channels, 1);
      std::vector<float> out(all.z.size());
      std::vector<uint16_t> own_out(all.z.size());
      abn_gradient_apply(in, {apply.data(), apply.data(), apply.data()}, 13, channels, out.data());
      abn_gradient_apply(own, {apply.data(), apply.data(), apply.data()}, 13, channels, own_out.data());
      for (size_t i = 0; i < out.size(); ++i) {
        if (kind == Invertible::elu && all.z[i] == -1) continue;  // has no inverse: half a unit of the type above
        EXPECT_EQ(own_out[i], rounded(out[i])) << all.z[i];
      }
    }
  }
}

TEST_P(AbnKernels, AnEluOfMinusOneCountsAsHalfAUnitAbove) {
  const uint16_t z = rounded(-1.0F), gradient = rounded(1.0F);
  uint16_t out = 0;
  const float one = 1, zero = 0;
  abn_gradient_apply({Invertible::elu, 0, &z, &gradient, nullptr, &zero}, {&zero, &one, &zero}, 1, 1, &out);
  EXPECT_NEAR(widened(out), std::log(2e-3), 0.05);
}

TEST_P(AbnKernels, MomentsAreThoseOfTheDifferenceToTheFirstRow) {
  for (const int64_t channels : {5, 16}) {
    const auto x = drawn<double>(1, 9 * channels, 3);
    std::vector<double> sum(channels), square(channels);
    abn_moments(x.data(), 9, channels, sum.data(), square.data());
    for (int64_t c = 0; c < channels; ++c) {
      double own_sum = 0, own_square = 0;
      for (int64_t i = c; i < 9 * channels; i += channels) {
        own_sum += x[i] - x[c];
        own_square += (x[i] - x[c]) * (x[i] - x[c]);
      }
      EXPECT_NEAR(sum[c], own_sum, 1e-13);
      EXPECT_NEAR(square[c], own_square, 1e-12);
    }
  }
}

/// The error of y from z, over what the rounding of z to T allows: half a unit of z over the slope, or near the
/// minimum, where the slope is 0, the distance at which z changes by that unit.
template <class T>
double worst_inverse(const std::vector<double>& places) {
  double worst = 0;
  for (const double place : places) {
    const T y = static_cast<T>(place);
    T z = y, back = 0;
    const T one = 1, zero = 0;
    uint8_t sides[2] = {};
    abn_forward({Invertible::swish, T(0), &one, &zero}, 1, 1, &z, sides);
    EXPECT_EQ(sides[0] & 1, y >= T(-1.27846454276107379511) ? 1 : 0) << place;
    invert_swish(&z, sides, 1, 1, &back);
    const double unit = std::numeric_limits<T>::epsilon() * (std::abs(double{z}) + 1e-37);
    const double slope = std::abs(static_cast<double>(slope_of(Invertible::swish, y)));
    const double allowed =
        std::min(unit / slope, 2.5 * std::sqrt(unit)) + std::numeric_limits<T>::epsilon() * std::abs(double{y});
    worst = std::max(worst, std::abs(double{back} - double{y}) / allowed);
  }
  return worst;
}

TEST_P(AbnKernels, SwishIsInvertedToTheRoundingOfItsValue) {
  std::vector<double> places;
  for (int i = -8000; i <= 8000; ++i) places.push_back(i * 0.01 + 0.0013);
  for (int i = -60; i <= 60; ++i)
    places.push_back(-1.27846454276107379511 + std::copysign(std::pow(2.0, -std::abs(i) / 2.0), i));
  EXPECT_LT(worst_inverse<float>(places), 2);
  EXPECT_LT(worst_inverse<double>(places), 2);
}

TEST_P(AbnKernels, ValuesWithoutAnInverseStayFinite) {
  const std::vector<float> far = {-200, -90, -17, 1e30F};
  for (const auto kind : {Invertible::elu, Invertible::swish}) {
    auto z = far;
    const std::vector<float> ones(4, 1), zeros(4, 0);
    std::vector<uint8_t> sides(side_bytes(4));
    abn_forward({kind, 0, ones.data(), zeros.data()}, 1, 4, z.data(), sides.data());
    std::vector<float> out(4);
    abn_gradient_apply({kind, 0, z.data(), ones.data(), sides.data(), zeros.data()},
                       {ones.data(), zeros.data(), zeros.data()}, 1, 4, out.data());
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(out[i], 0, 1e-6) << far[i];
    EXPECT_EQ(out[3], 1.0F);
  }
}

}  // namespace
}  // namespace tandem::kernels
