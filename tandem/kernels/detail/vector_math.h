#pragma once
#include <cstring>
#include <initializer_list>

#include "tandem/base/vectors.h"

// Functions of vectors for kernels. Everything here is inlined into those kernels. T is float or double.
namespace tandem::kernels::detail {

/// Numbers in a vector.
template <class T>
inline constexpr int64_t kWidth = 64 / sizeof(T);

template <class T>
TANDEM_INLINE Vector<T> all(T value) {
  return Vector<T>{} + value;
}

/// Highest power first.
template <class T, size_t count>
TANDEM_INLINE Vector<T> polynomial(const Vector<T>& x, const T (&coefficients)[count]) {
  auto sum = all(coefficients[0]);
#pragma GCC unroll 32
  for (size_t i = 1; i < count; ++i) sum = sum * x + coefficients[i];
  return sum;
}

TANDEM_INLINE Vector<float> magnitude(const Vector<float>& x) { return x < 0.0F ? -x : x; }
TANDEM_INLINE Vector<double> magnitude(const Vector<double>& x) { return x < 0.0 ? -x : x; }

/// Roots of numbers of 0 or more: Newton's iteration for 1 / sqrt(x) from a first guess by bits, then one step for the
/// root itself. (A loop of scalar roots would not become a vector one.) rough_root: to 5e-6 of the root.
TANDEM_INLINE Vector<float> rough_root(const Vector<float>& x) {
  Vectors<float>::Bits bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const auto guess = 0x5F3759DF - (bits >> 1);
  Vector<float> r;
  std::memcpy(&r, &guess, sizeof(r));
  r = r * (1.5F - 0.5F * x * r * r);
  const auto root = x * r;
  return root + 0.5F * r * (x - root * root);
}
TANDEM_INLINE Vector<double> square_root(const Vector<double>& x) {
  Vectors<double>::Bits bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const auto guess = 0x5FE6EB50C7B537A9 - (bits >> 1);
  Vector<double> r;
  std::memcpy(&r, &guess, sizeof(r));
  for (int i = 0; i < 4; ++i) r = r * (1.5 - 0.5 * x * r * r);
  const auto root = x * r;
  return root + 0.5 * r * (x - root * root);
}

/// True if any of the numbers is not 0.
template <class Values>
TANDEM_INLINE bool any_of(const Values& values) {
  uint64_t words[sizeof(values) / 8], all = 0;
  std::memcpy(words, &values, sizeof(values));
  for (const auto word : words) all |= word;
  return all != 0;
}

/// x = n ln 2 + r; `scale` = 2^n, assembled from bits. x must be in -87 .. 88 (float), -708 .. 709 (double).
template <class T>
struct Reduced {
  Vector<T> rest, scale;
};

TANDEM_INLINE Reduced<float> reduced(const Vector<float>& x) {
  constexpr float kLog2 = 1.44269504F, kHigh = 0.693359375F, kLow = -2.12194440e-4F, kRound = 12582912.0F;
  const auto n = (x * kLog2 + kRound) - kRound;
  const auto power = (__builtin_convertvector(n, Vectors<float>::Bits) + 127) << 23;
  Reduced<float> parts{(x - n * kHigh) - n * kLow, {}};
  std::memcpy(&parts.scale, &power, sizeof(power));
  return parts;
}

TANDEM_INLINE Reduced<double> reduced(const Vector<double>& x) {
  constexpr double kLog2 = 1.4426950408889634, kHigh = 0.693145751953125, kLow = 1.42860682030941723212e-6,
                   kRound = 6755399441055744.0;
  const auto n = (x * kLog2 + kRound) - kRound;
  const auto power = (__builtin_convertvector(n, Vectors<double>::Bits) + 1023) << 52;
  Reduced<double> parts{(x - n * kHigh) - n * kLow, {}};
  std::memcpy(&parts.scale, &power, sizeof(power));
  return parts;
}

/// exp(x) for x <= 0: e^r is its series to the last place of T. A result below the least normal number becomes 0; a NaN
/// stays a NaN.
TANDEM_INLINE Vector<float> exp_of_negative(const Vector<float>& x) {
  const auto [r, scale] = reduced(x < -87.0F ? all(-87.0F) : x);
  auto series = all(1.0F / 720.0F);
  for (const float c : {1.0F / 120.0F, 1.0F / 24.0F, 1.0F / 6.0F, 0.5F, 1.0F, 1.0F}) series = series * r + c;
  return x < -87.0F ? Vector<float>{} : series * scale;
}

TANDEM_INLINE Vector<double> exp_of_negative(const Vector<double>& x) {
  const auto [r, scale] = reduced(x < -708.0 ? all(-708.0) : x);
  auto series = all(1.0 / 6227020800.0);
  for (const double c : {1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0,
                         1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0}) {
    series = series * r + c;
  }
  return x < -708.0 ? Vector<double>{} : series * scale;
}

/// exp(x) - 1 for x <= 0, accurate near 0: 2^n (e^r - 1) + (2^n - 1).
TANDEM_INLINE Vector<float> expm1_of_negative(const Vector<float>& x) {
  const auto [r, scale] = reduced(x < -87.0F ? all(-87.0F) : x);
  const auto series =
      polynomial<float>(r, {1.0F / 5040.0F, 1.0F / 720.0F, 1.0F / 120.0F, 1.0F / 24.0F, 1.0F / 6.0F, 0.5F, 1.0F, 0.0F});
  return scale * series + (scale - 1.0F);
}

TANDEM_INLINE Vector<double> expm1_of_negative(const Vector<double>& x) {
  const auto [r, scale] = reduced(x < -708.0 ? all(-708.0) : x);
  const auto series = polynomial<double>(
      r, {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0,
          1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 0.0});
  return scale * series + (scale - 1.0);
}

/// The natural logarithm of a normal number: x = 2^n m with m in sqrt(1/2) .. sqrt(2); ln m = 2 artanh((m - 1) / (m +
/// 1)), by its series.
TANDEM_INLINE Vector<float> log_of_normal(const Vector<float>& x) {
  Vectors<float>::Bits bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const auto n = (bits - 0x3F3504F3) >> 23;
  const auto mantissa = bits - (n << 23);
  Vector<float> m;
  std::memcpy(&m, &mantissa, sizeof(m));
  const auto exponent = __builtin_convertvector(n, Vector<float>);
  const auto s = (m - 1.0F) / (m + 1.0F), square = s * s;
  const auto series = polynomial<float>(square, {2.0F / 9.0F, 2.0F / 7.0F, 2.0F / 5.0F, 2.0F / 3.0F, 0.0F});
  return exponent * 0.693359375F + (exponent * -2.12194440e-4F + (s * series + 2.0F * s));
}

TANDEM_INLINE Vector<double> log_of_normal(const Vector<double>& x) {
  Vectors<double>::Bits bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const auto n = (bits - 0x3FE6A09E667F3BCD) >> 52;
  const auto mantissa = bits - (n << 52);
  Vector<double> m;
  std::memcpy(&m, &mantissa, sizeof(m));
  const auto exponent = __builtin_convertvector(n, Vector<double>);
  const auto s = (m - 1.0) / (m + 1.0), square = s * s;
  const auto series = polynomial<double>(square, {2.0 / 21.0, 2.0 / 19.0, 2.0 / 17.0, 2.0 / 15.0, 2.0 / 13.0,
                                                  2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0, 0.0});
  return exponent * 0.693145751953125 + (exponent * 1.42860682030941723212e-6 + (s * series + 2.0 * s));
}

}  // namespace tandem::kernels::detail
