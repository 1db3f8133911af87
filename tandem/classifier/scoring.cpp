#include "tandem/classifier/scoring.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem::classifier {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kLeastSine = 1e-6;

MarginValue extended(double phi, double slope) {
  const double turns = std::floor(phi / kPi);
  const double sign = std::fmod(turns, 2.0) == 0.0 ? 1.0 : -1.0;
  return {sign * std::cos(phi) - 2.0 * turns, sign * std::sin(phi) * slope};
}

/// The marginal cosine before softening and m3. `slope`: -dphi/dc, so that d cos(phi)/dc = sin(phi) * slope.
MarginValue angular(const Margin& margin, double cosine) {
  const double theta = std::acos(cosine);
  const double phi = margin.factor * theta + margin.angle;
  const double slope = margin.factor / std::max(std::sin(theta), kLeastSine);
  const MarginValue plain = {std::cos(phi), std::sin(phi) * slope};
  const bool is_within = phi <= kPi;
  switch (margin.beyond) {
    case Beyond::extend:
      return extended(phi, slope);
    case Beyond::linear:
      return is_within ? plain : MarginValue{cosine - margin.angle * std::sin(margin.angle), 1.0};
    case Beyond::easy:
      return cosine > 0.0 ? plain : MarginValue{cosine, 1.0};
    case Beyond::clamp:
      return is_within ? plain : MarginValue{-1.0, 0.0};
    default:
      return plain;
  }
}

}  // namespace

MarginValue apply_margin(const Margin& margin, double cosine) {
  const double c = std::clamp(cosine, -1.0, 1.0);
  const bool is_angular = margin.factor != 1.0 || margin.angle != 0.0;
  auto result = is_angular ? angular(margin, c) : MarginValue{c, 1.0};
  // sin(m theta) / sin(theta) at theta = 0 is m; the guard above would make it 0.
  if (margin.angle == 0.0 && 1.0 - c < kLeastSine * kLeastSine) result.slope = margin.factor * margin.factor;
  result.value = (margin.softening * c + result.value - margin.cosine) / (1.0 + margin.softening);
  result.slope = (margin.softening + result.slope) / (1.0 + margin.softening);
  if (margin.gradient == TargetGradient::detached) result.slope = 1.0;
  return result;
}

Scoring plain_softmax() { return {}; }
Scoring linear_softmax() { return {.has_bias = true}; }

bool is_plain_softmax(const Scoring& scoring) {
  return !scoring.normalise_features && !scoring.normalise_weight && scoring.scale == 1.0 && scoring.margin.is_none();
}

Scoring normalised_softmax(double scale) {
  return {.normalise_features = true, .normalise_weight = true, .scale = scale};
}

Scoring combined_margin(double scale, double factor, double angle, double cosine) {
  auto scoring = normalised_softmax(scale);
  scoring.margin = {.factor = factor, .angle = angle, .cosine = cosine};
  return scoring;
}

Scoring cosface(double scale, double margin) { return combined_margin(scale, 1.0, 0.0, margin); }

Scoring arcface(double scale, double margin) { return combined_margin(scale, 1.0, margin, 0.0); }

Scoring sphereface(double factor, double softening) {
  return {.normalise_weight = true, .margin = {.factor = factor, .softening = softening}};
}

Scoring large_margin_softmax(double factor, double softening) {
  return {.margin = {.factor = factor, .softening = softening}};
}

void check_scoring(const Scoring& scoring) {
  const auto& margin = scoring.margin;
  const auto finite = [](double value) { return std::isfinite(value); };
  TORCH_CHECK_VALUE(finite(scoring.scale) && scoring.scale > 0, "softmax loss: scale is ", scoring.scale,
                    ", wanted a positive number");
  TORCH_CHECK_VALUE(finite(margin.factor) && margin.factor > 0, "softmax loss: the margin's factor is ", margin.factor,
                    ", wanted a positive number");
  TORCH_CHECK_VALUE(finite(margin.angle) && margin.angle >= 0, "softmax loss: the margin's angle is ", margin.angle,
                    ", wanted 0 or more");
  TORCH_CHECK_VALUE(finite(margin.cosine), "softmax loss: the margin's cosine is ", margin.cosine,
                    ", wanted a finite number");
  TORCH_CHECK_VALUE(finite(margin.softening) && margin.softening >= 0, "softmax loss: the margin's softening is ",
                    margin.softening, ", wanted 0 or more");
  TORCH_CHECK_VALUE(margin.beyond != Beyond::linear || margin.factor == 1.0,
                    "softmax loss: beyond=linear has a factor of ", margin.factor, ", wanted 1");
  TORCH_CHECK_VALUE(scoring.smoothing >= 0 && scoring.smoothing < 1, "softmax loss: smoothing is ", scoring.smoothing,
                    ", wanted at least 0 and less than 1");
  const bool has_cosines = scoring.normalise_features && scoring.normalise_weight;
  TORCH_CHECK_VALUE(scoring.filter >= 1.0 || (has_cosines && scoring.filter > -1.0), "softmax loss: filter is ",
                    scoring.filter, ", wanted 1 (none), or a cosine with normalised features and weight");
}

double Annealing::at(long step) const {
  return std::max(least, base * std::pow(1.0 + gamma * static_cast<double>(step), -power));
}

}  // namespace tandem::classifier
