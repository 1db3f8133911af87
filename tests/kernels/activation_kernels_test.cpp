#include "tandem/kernels/activation_kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/kernels/definitions.h"
#include "tests/kernels/every_cpu.h"

namespace tandem::kernels {
namespace {

class ActivationKernels : public EveryCpu {};
INSTANTIATE_TEST_SUITE_P(Cpus, ActivationKernels, testing::ValuesIn(cpu::available()), cpu_name);

template <class T>
std::vector<T> places() {
  std::vector<T> x;
  for (int i = -3001; i <= 3001; ++i) x.push_back(static_cast<T>(i * 0.01 + 0.003));
  return x;  // 6003: no multiple of a vector
}

/// The largest error, in units of the last place of max(|x|, 1) * T.
template <class T>
void expect_exact(double tolerance) {
  const auto x = places<T>();
  const auto count = static_cast<int64_t>(x.size());
  for (const auto curve : kCurves) {
    std::vector<T> y(x.size()), slope(x.size(), T(1));
    activate(curve, x.data(), count, y.data());
    differentiate(curve, x.data(), slope.data(), count, slope.data());
    double of_value = 0, of_slope = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto unit = std::numeric_limits<T>::epsilon() * std::max(T(1), std::abs(x[i]));
      of_value = std::max(of_value, static_cast<double>(std::abs(y[i] - value_of(curve, x[i])) / unit));
      of_slope = std::max(of_slope, static_cast<double>(std::abs(slope[i] - slope_of(curve, x[i])) / unit));
    }
    EXPECT_LT(of_value, tolerance) << "curve " << static_cast<int>(curve);
    EXPECT_LT(of_slope, tolerance) << "curve " << static_cast<int>(curve);
  }
}

TEST_P(ActivationKernels, EqualTheDefinitionsInFloat64) { expect_exact<double>(3); }
TEST_P(ActivationKernels, EqualTheDefinitionsInFloat32) { expect_exact<float>(3); }

TEST_P(ActivationKernels, ANumberDependsOnItsPlaceInNoWay) {
  const auto x = places<float>();
  for (const auto curve : kCurves) {
    std::vector<float> together(37), alone(37);
    activate(curve, x.data() + 2900, 37, together.data());
    for (int i = 0; i < 37; ++i) activate(curve, x.data() + 2900 + i, 1, alone.data() + i);
    EXPECT_EQ(together, alone);
  }
}

TEST_P(ActivationKernels, FarValuesEndInTheirLimits) {
  constexpr float kFar = std::numeric_limits<float>::infinity();
  for (const auto curve : kCurves) {
    const std::vector<float> x = {kFar, 1e30F, 200, -200, -1e30F, std::nanf("")};
    std::vector<float> y(x.size());
    activate(curve, x.data(), static_cast<int64_t>(x.size()), y.data());
    EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 3), (std::vector<float>{kFar, 1e30F, 200}));
    EXPECT_EQ(y[3], 0.0F);
    EXPECT_EQ(y[4], 0.0F);
    EXPECT_TRUE(std::isnan(y[5]));
    std::vector<float> slope(x.size(), 1);
    differentiate(curve, x.data() + 1, slope.data(), 5, slope.data());
    EXPECT_EQ(std::vector<float>(slope.begin(), slope.begin() + 4), (std::vector<float>{1, 1, 0, 0}));
    EXPECT_TRUE(std::isnan(slope[4]));
  }
}

TEST_P(ActivationKernels, Bfloat16IsFloatRounded) {
  const auto widened = [](uint16_t half) {
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  };
  std::vector<uint16_t> x, y(21), slope(21, 0x3F80);  // 1
  for (int i = 0; i < 21; ++i) x.push_back(static_cast<uint16_t>((i % 2 == 0 ? 0x3F00 : 0xBF00) + i * 7));
  for (const auto curve : kCurves) {
    activate(curve, x.data(), 21, y.data());
    std::vector<uint16_t> gradient = slope;
    differentiate(curve, x.data(), gradient.data(), 21, gradient.data());
    for (int i = 0; i < 21; ++i) {
      const double value = value_of(curve, widened(x[i])), own_slope = slope_of(curve, widened(x[i]));
      EXPECT_NEAR(widened(y[i]), value, std::abs(value) / 250);
      EXPECT_NEAR(widened(gradient[i]), own_slope, std::abs(own_slope) / 250);
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
