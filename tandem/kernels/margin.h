#pragma once
#include <cstdint>

#include "tandem/kernels/grid/body.h"

/// Margins of a classifier's target scores, wherever these are computed.
namespace tandem::kernels {

/// What the target's score becomes where factor * theta + angle leaves [0, pi], in which the cosine falls.
enum class Beyond : uint8_t {
  extend,  // goes on falling: (-1)^k cos(phi) - 2k, k = floor(phi / pi); no jump in value or slope (SphereFace)
  cosine,  // nothing is done: the cosine rises again (InsightFace today)
  linear,  // cos(theta) - angle * sin(angle), for factor 1: jumps at the switch (InsightFace before)
  easy,    // the margin holds only where cos(theta) > 0
  clamp,   // phi stays at pi, with slope 0 where the gradient is exact (OpenSphere)
};

/// exact: the derivative of the value. detached: the margin counts as a constant, slope 1 (InsightFace's ArcFace).
enum class TargetGradient : uint8_t { exact, detached };

/// The target's cosine c = cos(theta) becomes g(c) = (softening * c + cos(factor * theta + angle) - cosine) /
/// (1 + softening).
struct Margin {
  double factor = 1.0;     // m1: SphereFace, L-softmax
  double angle = 0.0;      // m2, radians: ArcFace
  double cosine = 0.0;     // m3: CosFace
  double softening = 0.0;  // lambda of SphereFace and L-softmax
  Beyond beyond = Beyond::extend;
  TargetGradient gradient = TargetGradient::exact;

  TANDEM_BODY bool is_none() const { return factor == 1.0 && angle == 0.0 && cosine == 0.0; }
};

struct MarginValue {
  double value, slope;  // g(c), dg/dc
};

inline constexpr double kLeastSine = 1e-6;

TANDEM_BODY inline MarginValue extended_cosine(double phi, double slope) {
  constexpr double kPi = 3.14159265358979323846;
  const double turns = std::floor(phi / kPi);
  const double sign = std::fmod(turns, 2.0) == 0.0 ? 1.0 : -1.0;
  return {sign * std::cos(phi) - 2.0 * turns, sign * std::sin(phi) * slope};
}

/// The marginal cosine before softening and m3. `slope`: -dphi/dc, so that d cos(phi)/dc = sin(phi) * slope.
TANDEM_BODY inline MarginValue angular_margin(const Margin& margin, double cosine) {
  constexpr double kPi = 3.14159265358979323846;
  const double theta = std::acos(cosine);
  const double phi = margin.factor * theta + margin.angle;
  const double slope = margin.factor / larger(std::sin(theta), kLeastSine);
  const MarginValue plain = {std::cos(phi), std::sin(phi) * slope};
  const bool is_within = phi <= kPi;
  switch (margin.beyond) {
    case Beyond::extend:
      return extended_cosine(phi, slope);
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

/// At `cosine`, which is clamped to [-1, 1]. The slope is finite everywhere: sin(theta) counts as 1e-6 or more.
TANDEM_BODY inline MarginValue apply_margin(const Margin& margin, double cosine) {
  const double c = cosine < -1.0 ? -1.0 : (cosine > 1.0 ? 1.0 : cosine);
  const bool is_angular = margin.factor != 1.0 || margin.angle != 0.0;
  auto result = is_angular ? angular_margin(margin, c) : MarginValue{c, 1.0};
  // sin(m theta) / sin(theta) at theta = 0 is m; the guard above would make it 0.
  if (margin.angle == 0.0 && 1.0 - c < kLeastSine * kLeastSine) result.slope = margin.factor * margin.factor;
  result.value = (margin.softening * c + result.value - margin.cosine) / (1.0 + margin.softening);
  result.slope = (margin.softening + result.slope) / (1.0 + margin.softening);
  if (margin.gradient == TargetGradient::detached) result.slope = 1.0;
  return result;
}

}  // namespace tandem::kernels
