#pragma once
#include "tandem/kernels/detail/vector_math.h"

// The inverse of swish, y = x s(x) with s(x) = 1 / (1 + e^-x). Everything here is inlined into kernels. T is float or
// double.
namespace tandem::kernels::detail {

/// y = x s(x) has its minimum kLeast at kAt. kLeast is in two parts, so that y - kLeast keeps its digits.
template <class T>
struct SwishMinimum {
  static constexpr double kLeast = -0.27846454276107379511;
  static constexpr T kAt = T(-1.27846454276107379511), kHigh = T(kLeast);
  static constexpr T kLow = sizeof(T) == 4 ? T(kLeast - static_cast<double>(kHigh)) : T(-3.0E-18);
};

template <class T>
struct SwishSolution {
  Vector<T> x, s;
};

inline constexpr double kSwishFar = -0.45, kSwishLarge = 2.8;  // q: x is -3.93, and 7.57

/// A first x: so near that a step of Newton's iteration in float, or two of Halley's in double, end in the last place.
/// The first three coefficients are those of the series around the minimum, the others fitted to the error that these
/// steps allow (at most 5e-4 where q < 2). From kSwishLarge on y itself is near enough; below kSwishFar see below.
template <class T>
TANDEM_INLINE Vector<T> swish_start(const Vector<T>& q, const Vector<T>& y) {
  constexpr double kLeft[] = {14540.87643066265, 20817.152981956922, 12009.196377794608, 3431.0238005327415,
                              504.5917518520958, 27.747303053867174, 3.3992661463470424};
  constexpr double kRight[] = {0.012053496051221274, -0.13661628238757187, 0.6514051641132932, -1.7308231844333173,
                               2.8720928684057103,   -3.186073611080539,   2.8162667787290294};
  const auto c = [&](int i) { return q < T(0) ? all(T(kLeft[i])) : all(T(kRight[i])); };
  const auto q2 = q * q, q4 = q2 * q2;
  const auto high = c(0) * q + c(1), middle = (c(2) * q + c(3)) * q2 + (c(4) * q + c(5));
  const auto low = (c(6) * q + T(-2.06074765111241476)) * q2 + (q * T(3.0302216013580994) + SwishMinimum<T>::kAt);
  const auto sum = (high * q4 + middle) * q4 + low;
  return q > T(kSwishLarge) ? y : sum;
}

/// The same for q < kSwishFar: -x is L + ln L + a polynomial of ln L, L = -ln(-y).
template <class T>
TANDEM_INLINE Vector<T> swish_start_far(const Vector<T>& y) {
  const auto l = -log_of_normal(-y), log = log_of_normal(l);
  return -(l + log +
           polynomial<T>(log, {T(8.23918219517626e-05), T(-0.002252389461578159), T(0.025674812099449155),
                               T(-0.15822468029521877), T(0.5676991563102831), T(-1.1578863827758168),
                               T(1.0770937557692477), T(0.046755245202983235)}));
}

/// A step of Newton's iteration on x - y (1 + e^-x) = 0, and s to the second order of the step. Where `above` = q^2 is
/// small, x is near enough, and the step, which would divide by 0 at the minimum, is left out.
TANDEM_INLINE SwishSolution<float> swish_newton(const Vector<float>& x, const Vector<float>& y,
                                                const Vector<float>& above) {
  const auto [r, scale] = reduced(x > 87.0F ? all(-87.0F) : -x);
  const auto r2 = r * r;
  const auto e = (((r * (1.0F / 720.0F) + 1.0F / 120.0F) * r2 + (r * (1.0F / 24.0F) + 1.0F / 6.0F)) * r2 * r +
                  (r2 * 0.5F + (r + 1.0F))) *
                 scale;
  const auto product = y * e;
  const auto step = above < 1e-4F ? Vector<float>{} : (x - y - product) / (product + 1.0F);
  const auto inverse = e * step + (e + 1.0F);                     // 1 / s
  return {y < -0.125F ? x - step : y * inverse, 1.0F / inverse};  // y / s keeps the digits of a small x
}

/// A step of Halley's iteration on x s - y = 0, in ratios that neither overflow nor vanish: m = x - y / s, c = 1 + x (1
/// - s), f / f' = m / c, f'' / f' = (1 - s) (2 + x (1 - 2 s)) / c. s follows to the second order of the step.
TANDEM_INLINE SwishSolution<double> swish_halley(const Vector<double>& x, const Vector<double>& y) {
  const auto e = exp_of_negative(-magnitude(x));
  const auto inverse = 1.0 / (e + 1.0), small = e * inverse;
  const auto s = x < 0.0 ? small : inverse, other = x < 0.0 ? inverse : small;
  const auto m = x - y / s, c = 1.0 + x * other, curve = other * (2.0 + x * (other - s));
  const auto step = 2.0 * m * c / (2.0 * c * c - m * curve);
  return {x - step, s - s * other * step * (1.0 - 0.5 * (other - s) * step)};
}

/// x = sum of a_k q^k, the series around the minimum, to 1e-15 for |q| < 0.05.
TANDEM_INLINE Vector<double> swish_near_minimum(const Vector<double>& q) {
  return polynomial<double>(
      q, {-655.654157844528826, 373.447509992571043, -214.023654088359939, 123.549025219474668, -71.9389859178529584,
          42.3279957510526701, -25.2291157597082491, 15.2858473906355159, -9.45983958017323796, 6.03466916846034026,
          -3.98644528060386959, 2.90081780557014534, -2.06074765111241476, 3.0302216013580994, -1.2784645427610738});
}

/// The x, on the side that `sign` names (1: right of the minimum, -1: left), where x s(x) = z, and s(x). Values of q
/// below kSwishFar are rare and take longer. A 0 on the left has no inverse: it counts as the nearest number that has
/// one.
TANDEM_INLINE SwishSolution<float> inverse_swish(const Vector<float>& z, const Vector<float>& sign) {
  const auto above = (z - SwishMinimum<float>::kHigh) - SwishMinimum<float>::kLow;
  const auto q = rough_root(above < 0.0F ? Vector<float>{} : above) * sign;
  auto solution = swish_newton(swish_start<float>(q, z), z, above);
  const auto far = q < static_cast<float>(kSwishFar) ? all(1.0F) : Vector<float>{};
  if (any_of(far)) {
    const auto y = z > -1e-35F ? all(-1e-35F) : z;
    const auto [x, s] = swish_newton(swish_start_far<float>(y), y, above);
    solution.x = far > 0.0F ? x : solution.x;
    solution.s = far > 0.0F ? s : solution.s;
  }
  return solution;
}
TANDEM_INLINE SwishSolution<double> inverse_swish(const Vector<double>& z, const Vector<double>& sign) {
  const auto above = (z - SwishMinimum<double>::kHigh) - SwishMinimum<double>::kLow;
  const auto q = square_root(above < 0.0 ? Vector<double>{} : above) * sign;
  const auto y = q < kSwishFar ? (z > -1e-300 ? all(-1e-300) : z) : z;
  auto start = swish_start<double>(q, y);
  const auto far = q < kSwishFar ? all(1.0) : Vector<double>{};
  if (any_of(far)) start = far > 0.0 ? swish_start_far<double>(y) : start;
  const auto [x, s] = swish_halley(swish_halley(start, y).x, y);
  return {magnitude(q) < 0.05 ? swish_near_minimum(q) : x, s};
}

}  // namespace tandem::kernels::detail
