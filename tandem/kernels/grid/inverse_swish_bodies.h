#pragma once
#include "tandem/kernels/detail/swish_table.h"
#include "tandem/kernels/grid/body.h"

/// The inverse of swish, y = x s(x) with s(x) = 1 / (1 + e^-x), as bodies: what detail/inverse_swish.inc
/// computes for vectors; its comments say why.
namespace tandem::kernels {

/// Highest power first.
template <class T, int count>
TANDEM_BODY T polynomial(T x, const T (&coefficients)[count]) {
  T sum = coefficients[0];
  TANDEM_UNROLL
  for (int i = 1; i < count; ++i) sum = sum * x + coefficients[i];
  return sum;
}

/// The minimum of x s(x), which is in two parts, so that y less it keeps its digits.
template <class T>
struct SwishLeast {
  static constexpr T kAt = T(detail::kSwishAt), kHigh = T(detail::kSwishLeast);
  static constexpr T kLow = sizeof(T) == 4 ? T(detail::kSwishLeast - static_cast<double>(kHigh)) : T(-3.0E-18);
};

template <class T>
struct SwishRoot {
  T x, s;
};

/// A first x for y near 0 on the left.
template <class T>
TANDEM_BODY T swish_start_far(T y) {
  const T l = -std::log(-y), log = std::log(l);
  return -(l + log +
           polynomial<T>(log, {T(8.23918219517626e-05), T(-0.002252389461578159), T(0.025674812099449155),
                               T(-0.15822468029521877), T(0.5676991563102831), T(-1.1578863827758168),
                               T(1.0770937557692477), T(0.046755245202983235)}));
}

/// A first x elsewhere.
TANDEM_BODY inline double swish_start(double q, double y) {
  const double q2 = q * q;
  const double own =
      q < 0 ? polynomial<double>(q, {14540.87643066265, 20817.152981956922, 12009.196377794608, 3431.0238005327415,
                                     504.5917518520958, 27.747303053867174, 3.3992661463470424})
            : polynomial<double>(q, {0.012053496051221274, -0.13661628238757187, 0.6514051641132932,
                                     -1.7308231844333173, 2.8720928684057103, -3.186073611080539, 2.8162667787290294});
  const double least = -2.06074765111241476 * q2 + (q * 3.0302216013580994 + SwishLeast<double>::kAt);
  return q > 2.8 ? y : own * (q2 * q) + least;
}

/// A step of Halley's iteration on x s - y = 0.
template <class T>
TANDEM_BODY SwishRoot<T> swish_halley(T x, T y) {
  const T e = std::exp(-std::fabs(x)), inverse = T(1) / (e + T(1)), small = e * inverse;
  const T s = x < T(0) ? small : inverse, other = x < T(0) ? inverse : small;
  const T m = x - y / s, c = T(1) + x * other, twice = c + c, turn = other - s;
  const T step = m * twice / (twice + other * (x * (twice - m * turn) - (m + m)));
  return {x - step, s - s * other * step * (T(1) - T(0.5) * turn * step)};
}

/// The series around the minimum.
TANDEM_BODY inline double swish_near_least(double q) {
  return polynomial<double>(
      q, {-655.654157844528826, 373.447509992571043, -214.023654088359939, 123.549025219474668, -71.9389859178529584,
          42.3279957510526701, -25.2291157597082491, 15.2858473906355159, -9.45983958017323796, 6.03466916846034026,
          -3.98644528060386959, 2.90081780557014534, -2.06074765111241476, 3.0302216013580994, -1.2784645427610738});
}

/// The x right of the minimum, or left of it, where x s(x) = z, and s(x). A 0 on the left has no inverse: it counts as
/// the nearest number that has one.
TANDEM_BODY inline SwishRoot<float> inverse_swish(float z, bool right) {
  static constexpr detail::SwishTable kTable = detail::kSwishTable;  // a device does not see the other
  constexpr float kFirst = detail::SwishTable::kFirst;
  const float above = (z - SwishLeast<float>::kHigh) - SwishLeast<float>::kLow;
  const float root = std::sqrt(larger(above, 0.0F)), q = smaller(right ? root : -root, kTable.cap);
  if (q < kFirst) {
    const float y = smaller(z, -1e-35F);
    return swish_halley(swish_start_far(y), y);
  }
  const float v = q + kTable.shift;
  int32_t bits;
  memcpy(&bits, &v, sizeof(bits));
  const float place = static_cast<float>(bits) * kTable.log + (v * kTable.line + kTable.offset);
  const int piece = static_cast<int>(place) & (detail::SwishTable::kPieces - 1);
  const float t = q - kTable.centre[piece];
  float s = kTable.coefficients[detail::SwishTable::kDegree][piece];
  TANDEM_UNROLL
  for (int k = detail::SwishTable::kDegree - 1; k >= 0; --k) s = s * t + kTable.coefficients[k][piece];
  return {z / s, s};
}
TANDEM_BODY inline SwishRoot<double> inverse_swish(double z, bool right) {
  const double above = (z - SwishLeast<double>::kHigh) - SwishLeast<double>::kLow;
  const double root = std::sqrt(larger(above, 0.0)), q = right ? root : -root;
  const bool far = q < detail::SwishTable::kFirst;
  const double y = far ? smaller(z, -1e-300) : z, start = far ? swish_start_far(y) : swish_start(q, y);
  auto solution = swish_halley(swish_halley(start, y).x, y);
  if (std::fabs(q) < 0.05) solution.x = swish_near_least(q);
  return solution;
}

}  // namespace tandem::kernels
