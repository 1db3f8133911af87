#include "tandem/kernels/grid/inverse_swish_bodies.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tandem/kernels/grid/activation_bodies.h"
#include "tests/kernels/grids.h"

namespace tandem::kernels {
namespace {

long double slope_of(long double y) {
  const long double s = 1 / (1 + std::exp(-y));
  return s * (1 + y * (1 - s));
}

/// The error of y from z, over what the rounding of z to T allows: half a unit of z over the slope, or near the
/// minimum, where the slope is 0, the distance at which z changes by that unit.
template <class T>
double worst_inverse(const std::vector<double>& places) {
  double worst = 0;
  for (const double place : places) {
    const T y = static_cast<T>(place), z = SwishCurve::value(y);
    const auto root = inverse_swish(z, y >= SwishLeast<T>::kAt);
    const double unit = kUnit<T> * (std::abs(double{z}) + 1e-37), slope = std::abs(static_cast<double>(slope_of(y)));
    const double allowed = std::min(unit / slope, 2.5 * std::sqrt(unit)) + kUnit<T> * std::abs(double{y});
    worst = std::max(worst, std::abs(double{root.x} - double{y}) / allowed);
    EXPECT_NEAR(root.s, 1 / (1 + std::exp(-double{y})), std::min(allowed, 1e-3) + 4 * kUnit<T>) << place;
  }
  return worst;
}

TEST(InverseSwishBodies, AreExactToTheRoundingOfTheValue) {
  std::vector<double> places;
  for (int i = -8000; i <= 8000; ++i) places.push_back(i * 0.01 + 0.0013);
  for (int i = -900; i <= 900; ++i) {
    places.push_back(detail::kSwishAt + std::copysign(std::pow(2.0, -std::abs(i) / 30.0), i));
  }
  EXPECT_LT(worst_inverse<float>(places), 2);
  EXPECT_LT(worst_inverse<double>(places), 2);
}

/// What no y on this side gives: 0 on the left, and numbers below the minimum.
TEST(InverseSwishBodies, ValuesWithoutAnInverseStayFinite) {
  for (const bool right : {false, true}) {
    for (const float z : {0.0F, -0.0F, -1e-40F, -0.2784646F, -0.279F, 1.0F, 1e30F}) {
      const auto root = inverse_swish(z, right);
      EXPECT_TRUE(std::isfinite(root.x) && std::isfinite(root.s)) << z;
      const auto wide = inverse_swish(double{z}, right);
      EXPECT_TRUE(std::isfinite(wide.x) && std::isfinite(wide.s)) << z;
    }
  }
  EXPECT_NEAR(inverse_swish(-0.2784648F, true).x, detail::kSwishAt, 2e-3);
}

}  // namespace
}  // namespace tandem::kernels
