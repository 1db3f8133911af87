#pragma once
#include <array>
#include <cmath>

#include "tandem/kernels/abn_kernels.h"
#include "tandem/kernels/activation_kernels.h"

// What kernels compute, by its definition.
namespace tandem::kernels {

inline constexpr std::array kCurves = {Curve::swish, Curve::mish, Curve::gelu};
inline constexpr double kSlope = 0.01;

/// The definitions, in long double: 64 bits of mantissa, for results of 53.
inline long double value_of(Curve curve, long double x) {
  if (curve == Curve::swish) return x / (1 + std::exp(-x));
  if (curve == Curve::mish) return x * std::tanh(std::log1p(std::exp(x)));
  return x * std::erfc(-x * std::sqrt(0.5L)) / 2;
}

inline long double slope_of(Curve curve, long double x) {
  const long double s = 1 / (1 + std::exp(-x));
  if (curve == Curve::swish) return s * (1 + x * (1 - s));
  if (curve == Curve::gelu) {
    return std::erfc(-x * std::sqrt(0.5L)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0L));
  }
  const long double t = std::tanh(std::log1p(std::exp(x)));
  return t + x * s * (1 - t * t);
}

inline long double value_of(Invertible kind, long double y) {
  if (kind == Invertible::swish) return y / (1 + std::exp(-y));
  if (kind == Invertible::identity || y >= 0) return y;
  return kind == Invertible::elu ? std::expm1(y) : kSlope * y;
}

inline long double slope_of(Invertible kind, long double y) {
  if (kind == Invertible::swish) {
    const long double s = 1 / (1 + std::exp(-y));
    return s * (1 + y * (1 - s));
  }
  if (kind == Invertible::identity || y >= 0) return 1;
  return kind == Invertible::elu ? std::exp(y) : kSlope;
}

}  // namespace tandem::kernels
