#include "tandem/kernels/grid/activation_grid.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/kernels/definitions.h"
#include "tests/kernels/grids.h"

namespace tandem::kernels {
namespace {

template <class S>
std::vector<S> places() {
  std::vector<S> x;
  for (int i = -3001; i <= 3001; ++i) x.push_back(stored_as<S>(i * 0.01 + 0.003));
  return x;
}

/// Errors in units of the last place of max(|x|, 1); half a unit more of the result, where S rounds it.
template <class S>
void expect_definitions(HostGrid grid) {
  const auto x = places<S>();
  const auto count = static_cast<int64_t>(x.size());
  for (const auto curve : kCurves) {
    std::vector<S> y(x.size()), slope(x.size(), stored_as<S>(1));
    activate_on(grid, curve, x.data(), count, y.data());
    differentiate_on(grid, curve, x.data(), slope.data(), count, slope.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const auto at = widened(x[i]);
      const double unit = kUnit<AbnNumber<S>> * std::max(1.0, std::abs(double{at}));
      const double rounding = sizeof(S) == 2 ? 0.5001 * kUnit<S> : 0;
      const auto value = static_cast<double>(value_of(curve, at)), own_slope = static_cast<double>(slope_of(curve, at));
      EXPECT_NEAR(widened(y[i]), value, 3 * unit + rounding * std::abs(value)) << at;
      EXPECT_NEAR(widened(slope[i]), own_slope, 3 * unit + rounding * std::abs(own_slope)) << at;
    }
  }
}

TEST(ActivationBodies, EqualTheDefinitions) {
  for (const int threads : kGridThreads) {
    expect_definitions<float>(HostGrid(threads));
    expect_definitions<double>(HostGrid(threads));
    expect_definitions<uint16_t>(HostGrid(threads));
  }
}

/// In a tail, the error is relative to x y'(x).
TEST(ActivationBodies, KeepTheDigitsOfTheirTails) {
  HostGrid grid;
  for (const auto curve : kCurves) {
    for (const float x : {-4.0F, -8.0F, -12.0F}) {
      float y = 0;
      activate_on(grid, curve, &x, 1, &y);
      const double scale = std::abs(x * static_cast<double>(slope_of(curve, x)));
      EXPECT_NEAR(y, static_cast<double>(value_of(curve, x)), 8 * kUnit<float> * scale);
    }
  }
}

template <class S>
void expect_those_of_the_cpu(HostGrid grid, Curve curve, int64_t count, int64_t shift) {
  const auto x = drawn_as<S>(1, count + 2, 9), gradient = drawn_as<S>(2, count + 2, 1);
  std::vector<S> y(count + 2), own = y, out = gradient, own_out = gradient;
  activate(curve, x.data() + shift, count, y.data() + shift);
  differentiate(curve, x.data() + shift, gradient.data() + shift, count, out.data() + shift);
  activate_on(grid, curve, x.data() + shift, count, own.data() + shift);
  differentiate_on(grid, curve, x.data() + shift, own_out.data() + shift, count, own_out.data() + shift);
  for (int64_t i = 0; i < count + 2; ++i) {  // what lies beside stays
    const double size = sizeof(S) == 2 ? 1.01 * std::abs(widened(y[i])) : 40;
    EXPECT_NEAR(widened(own[i]), widened(y[i]), kUnit<S> * size) << i << " of " << count;
    EXPECT_NEAR(widened(own_out[i]), widened(out[i]), kUnit<S> * 40) << i << " of " << count;
  }
}

TEST(ActivationBodies, EqualTheKernelsOfTheCpuForAnyCount) {
  for (const int threads : kGridThreads) {
    for (const auto curve : kCurves) {
      for (const int64_t count : kOddSizes) {
        for (const int64_t shift : {0, 1}) {
          expect_those_of_the_cpu<float>(HostGrid(threads), curve, count, shift);
          expect_those_of_the_cpu<double>(HostGrid(threads), curve, count, shift);
          expect_those_of_the_cpu<uint16_t>(HostGrid(threads), curve, count, shift);
        }
      }
    }
  }
}

TEST(ActivationBodies, FarValuesEndInTheirLimits) {
  constexpr float kFar = std::numeric_limits<float>::infinity();
  HostGrid grid;
  for (const auto curve : kCurves) {
    const std::vector<float> x = {kFar, 1e30F, 200, -200, -1e30F, std::nanf("")};
    std::vector<float> y(x.size()), slope(x.size(), 1);
    activate_on(grid, curve, x.data(), 6, y.data());
    differentiate_on(grid, curve, x.data() + 1, slope.data(), 5, slope.data());
    EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 5), (std::vector<float>{kFar, 1e30F, 200, 0, 0}));
    EXPECT_EQ(std::vector<float>(slope.begin(), slope.begin() + 4), (std::vector<float>{1, 1, 0, 0}));
    EXPECT_TRUE(std::isnan(y[5]));
    EXPECT_TRUE(std::isnan(slope[4]));
  }
}

}  // namespace
}  // namespace tandem::kernels
