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

/// x = sum of a_k q^k with q = +-sqrt(y - kLeast): the inverse around the minimum. To 1e-15 for |q| < 0.05, to 1e-8 for
/// |q| < 0.18.
template <class T>
TANDEM_INLINE Vector<T> swish_near_minimum(const Vector<T>& q) {
  return polynomial<T>(
      q, {T(-655.654157844528826), T(373.447509992571043), T(-214.023654088359939), T(123.549025219474668),
          T(-71.9389859178529584), T(42.3279957510526701), T(-25.2291157597082491), T(15.2858473906355159),
          T(-9.45983958017323796), T(6.03466916846034026), T(-3.98644528060386959), T(2.90081780557014534),
          T(-2.06074765111241476), T(3.0302216013580994), T(-1.2784645427610738)});
}

template <class T>
struct SwishSolution {
  Vector<T> x, s;
};

/// A step of Halley's iteration on x s - y = 0, in ratios that neither overflow nor vanish: m = x - y / s, c = 1 + x (1
/// - s), f / f' = m / c, f'' / f' = (1 - s) (2 + x (1 - 2 s)) / c. s follows to the second order of the step.
template <class T>
TANDEM_INLINE SwishSolution<T> swish_improved(const Vector<T>& x, const Vector<T>& y) {
  const auto e = exp_of_negative(-magnitude(x));
  const auto inverse = T(1) / (e + T(1)), small = e * inverse;
  const auto s = x < T(0) ? small : inverse, other = x < T(0) ? inverse : small;
  const auto m = x - y / s, c = T(1) + x * other, curve = other * (T(2) + x * (other - s));
  const auto step = T(2) * m * c / (T(2) * c * c - m * curve);
  return {x - step, s - s * other * step * (T(1) - T(0.5) * (other - s) * step)};
}

/// A first x where q is less than -0.42 or more than 1.5. On the left t = -x from t = L + ln t - ln(1 + e^-t), L =
/// -ln(-y); on the right y (1 + e^-y), roughly.
template <class T>
TANDEM_INLINE Vector<T> swish_start_far(const Vector<T>& y) {
  const auto l = -log_of_normal(y < T(0) ? -y : all(T(0.1)));
  auto t = l + log_of_normal(l < T(2) ? all(T(2)) : l);
  for (int i = 0; i < 2; ++i) t = l + log_of_normal(t) - exp_of_negative(-t);
  const auto right = y + y / polynomial<T>(y, {T(1) / T(24), T(1) / T(6), T(0.5), T(1), T(1)});
  return swish_improved<T>(swish_improved<T>(y < T(0) ? -t : right, y).x, y).x;
}

/// `sign` is that of q, which the side tells. The first x is interpolated to 6e-6; far values, which are rare, take
/// longer.
template <class T>
TANDEM_INLINE SwishSolution<T> inverse_swish(const Vector<T>& z, const Vector<T>& sign) {
  using M = SwishMinimum<T>;
  // A 0 on the left has no inverse: it becomes the nearest number that has one.
  constexpr T kNearest = sizeof(T) == 4 ? T(1e-35) : T(1e-300);
  const auto lack = z + kNearest < T(0) ? Vector<T>{} : z + kNearest;
  const auto y = z + (sign - T(1)) * (T(0.5) * lack);
  const auto above = (y - M::kHigh) - M::kLow;
  const auto root = square_root(above < T(0) ? Vector<T>{} : above);
  const auto q = root * sign;
  const auto near = swish_near_minimum<T>(q);
  const auto left = polynomial<T>((q + T(0.3)) * T(1 / 0.12),
                                  {T(-0.00153140035), T(0.00328283609), T(-0.00371744146), T(0.00862354101),
                                   T(-0.0235069078), T(0.0600851303), T(-0.169807398), T(0.725085593), T(-2.51188645)});
  const auto right =
      polynomial<T>((q - T(0.84)) * T(1 / 0.66),
                    {T(0.000325730808), T(-0.000844307319), T(0.000660828025), T(-0.00277771534), T(0.00777618909),
                     T(-0.00629793857), T(0.100298246), T(0.0626324477), T(1.37991799), T(0.650097626)});
  auto start = q < T(-0.18) ? left : q < T(0.18) ? near : right;
  const auto far = magnitude(q - T(0.54)) > T(0.96) ? all(T(1)) : Vector<T>{};
  if (any_of(far)) start = far > T(0) ? swish_start_far<T>(y) : start;
  if constexpr (sizeof(T) == 8) start = swish_improved<T>(start, y).x;
  const auto [x, s] = swish_improved<T>(start, y);
  return {magnitude(q) < T(0.05) ? near : x, s};
}

}  // namespace tandem::kernels::detail
