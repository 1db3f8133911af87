#include "tandem/classifier/scoring.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/support/text_of.h"

namespace tandem::classifier {
namespace {

constexpr double kPi = std::numbers::pi;

std::vector<Margin> margins() {
  std::vector<Margin> all = {{.cosine = 0.35},
                             {.factor = 0.9, .angle = 0.4, .cosine = 0.15},
                             {.factor = 1.35},
                             {.factor = 4.0},
                             {.factor = 4.0, .softening = 5.0}};
  for (const auto beyond : {Beyond::extend, Beyond::cosine, Beyond::linear, Beyond::easy, Beyond::clamp}) {
    all.push_back({.angle = 0.5, .beyond = beyond});
    if (beyond != Beyond::linear) all.push_back({.factor = 1.2, .angle = 0.5, .cosine = 0.1, .beyond = beyond});
  }
  return all;
}

/// Where theta is near 0, near the switch, near pi, and between.
std::vector<double> angles(const Margin& margin) {
  const double at_switch = (kPi - margin.angle) / margin.factor;
  std::vector<double> all = {1e-3, 0.01, 0.1, 1.0, kPi / 2 - 0.01, kPi / 2 + 0.01, 2.0, kPi - 0.1, kPi - 1e-3};
  for (const double step : {-0.01, -1e-3, 1e-3, 0.01}) {
    if (at_switch + step < kPi) all.push_back(at_switch + step);
  }
  return all;
}

TEST(Margin, TheSlopeIsTheDerivative) {
  for (const auto& margin : margins()) {
    for (const double theta : angles(margin)) {
      const double c = std::cos(theta), h = 1e-6 * std::sin(theta) * std::sin(theta);
      const double wanted = (apply_margin(margin, c + h).value - apply_margin(margin, c - h).value) / (2 * h);
      const double slope = apply_margin(margin, c).slope;
      EXPECT_NEAR(slope, wanted, 1e-3 * (1 + std::abs(wanted)))
          << margin.factor << " " << margin.angle << " at " << theta;
    }
  }
}

TEST(Margin, ExtendFallsWithoutAJump) {
  for (const double factor : {1.0, 1.7, 4.0}) {
    for (const double angle : {0.0, 0.5, 1.5}) {
      double before = 1e9;
      for (double theta = 0; theta <= kPi; theta += 1e-3) {
        const double value = apply_margin({.factor = factor, .angle = angle}, std::cos(theta)).value;
        EXPECT_LE(value, before + 1e-12);
        EXPECT_TRUE(before == 1e9 || before - value < 0.02);
        before = value;
      }
    }
  }
}

/// What others compute: known points.
TEST(Margin, KnownValues) {
  EXPECT_NEAR(apply_margin({.angle = 0.5}, std::cos(0.7)).value, std::cos(1.2), 1e-12);
  EXPECT_NEAR(apply_margin({.angle = 0.5, .beyond = Beyond::linear}, std::cos(3.0)).value,
              std::cos(3.0) - 0.5 * std::sin(kPi - 0.5), 1e-12);
  EXPECT_NEAR(apply_margin({.angle = 0.5, .beyond = Beyond::cosine}, std::cos(3.0)).value, std::cos(3.5), 1e-12);
  EXPECT_NEAR(apply_margin({.angle = 0.5, .beyond = Beyond::easy}, -0.3).value, -0.3, 1e-12);
  EXPECT_NEAR(apply_margin({.angle = 0.5, .beyond = Beyond::clamp}, -1).value, -1, 1e-12);
  // A-softmax with m = 4: psi(theta) = (-1)^k cos(4 theta) - 2k.
  EXPECT_NEAR(apply_margin({.factor = 4}, std::cos(0.9)).value, -std::cos(3.6) - 2, 1e-12);
  EXPECT_NEAR(apply_margin({.factor = 4, .softening = 5}, std::cos(0.9)).value,
              (5 * std::cos(0.9) - std::cos(3.6) - 2) / 6, 1e-12);
}

TEST(Margin, TheEndsAreFinite) {
  for (auto margin : margins()) {
    for (const auto gradient : {TargetGradient::exact, TargetGradient::detached}) {
      margin.gradient = gradient;
      for (const double cosine : {-1.1, -1.0, 1.0, 1.1}) {
        const auto [value, slope] = apply_margin(margin, cosine);
        EXPECT_TRUE(std::isfinite(value) && std::isfinite(slope));
        EXPECT_TRUE(gradient == TargetGradient::exact || slope == 1);
      }
    }
  }
  EXPECT_DOUBLE_EQ(apply_margin({.factor = 4}, 1).slope, 16);  // sin(4 theta) / sin(theta) tends to 4
}

TEST(Annealing, FallsToItsLeast) {
  const Annealing annealing = {.base = 1500, .gamma = 0.1, .power = 1, .least = 5};
  EXPECT_DOUBLE_EQ(annealing.at(0), 1500);
  EXPECT_DOUBLE_EQ(annealing.at(100), 1500.0 / 11);
  EXPECT_DOUBLE_EQ(annealing.at(1000000), 5);
}

TEST(Scoring, FaultsAreNamed) {
  const auto text = [](const Scoring& scoring) { return test::text_of([&] { check_scoring(scoring); }); };
  EXPECT_EQ(text(cosface(0, 0.2)), "softmax loss: scale is 0, wanted a positive number");
  EXPECT_EQ(text(sphereface(0, 0)), "softmax loss: the margin's factor is 0, wanted a positive number");
  EXPECT_EQ(text(arcface(64, -1)), "softmax loss: the margin's angle is -1, wanted 0 or more");
  EXPECT_EQ(text(sphereface(4, -1)), "softmax loss: the margin's softening is -1, wanted 0 or more");
  auto scoring = combined_margin(64, 2, 0.5, 0);
  scoring.margin.beyond = Beyond::linear;
  EXPECT_EQ(text(scoring), "softmax loss: beyond=linear has a factor of 2, wanted 1");
  scoring = plain_softmax();
  scoring.smoothing = 1;
  EXPECT_EQ(text(scoring), "softmax loss: smoothing is 1, wanted at least 0 and less than 1");
  scoring = plain_softmax();
  scoring.filter = 0.4;
  EXPECT_EQ(text(scoring),
            "softmax loss: filter is 0.4, wanted 1 (none), or a cosine with normalised features and weight");
}

}  // namespace
}  // namespace tandem::classifier
