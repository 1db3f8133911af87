#include "tandem/kernels/activation_kernels.h"

#include "tandem/kernels/detail/vector_math.h"

namespace tandem::kernels {
namespace {

using detail::all;
using detail::exp_of_negative;
using detail::kWidth;
using detail::magnitude;
using detail::polynomial;

/// Of a function at x: its value, or its slope. e = exp(-|x|) or exp(-x^2 / 2) never overflows.
struct Swish {
  template <class T>
  TANDEM_INLINE static Vector<T> value(const Vector<T>& x) {
    const auto e = exp_of_negative(-magnitude(x));
    return x * (x < T(0) ? e : all(T(1))) / (e + T(1));
  }

  /// s + x s (1 - s)
  template <class T>
  TANDEM_INLINE static Vector<T> slope(const Vector<T>& x) {
    const auto e = exp_of_negative(-magnitude(x));
    const auto inverse = T(1) / (e + T(1)), other = e * inverse;
    const auto s = x < T(0) ? other : inverse;
    return s + x * (inverse * other);
  }
};

/// tanh(ln(1 + w)) = n / (n + 2) with w = e^x, n = w (w + 2); above 0 both are divided by w^2.
struct Mish {
  template <class T>
  TANDEM_INLINE static Vector<T> value(const Vector<T>& x) {
    const auto e = exp_of_negative(-magnitude(x));
    const auto n = x < T(0) ? e * (e + T(2)) : T(1) + T(2) * e;
    return x * n / (n + (x < T(0) ? all(T(2)) : T(2) * e * e));
  }

  /// t + x s (1 - t^2) with 1 - t^2 = (d - n) (d + n) / d^2, t = n / d, which does not cancel
  template <class T>
  TANDEM_INLINE static Vector<T> slope(const Vector<T>& x) {
    const auto e = exp_of_negative(-magnitude(x));
    const auto n = x < T(0) ? e * (e + T(2)) : T(1) + T(2) * e;
    const auto difference = x < T(0) ? all(T(2)) : T(2) * e * e;
    const auto d = n + difference;
    const auto s = (x < T(0) ? e : all(T(1))) / (e + T(1));
    return (n + x * s * difference * (d + n) / d) / d;
  }
};

/// (1 + 2 z) e^(z^2) erfc(z) for z >= 0 as a polynomial of u = (z - k) / (z + k), k = 3.75 (Shepherd, Laframboise 1981,
/// who chose k): interpolated at Chebyshev points, to 1e-8 and 6e-18.
TANDEM_INLINE Vector<float> scaled_erfc(const Vector<float>& u) {
  return polynomial<float>(u, {2.363482007e-5F, -0.0002240520495F, 0.0003253884646F, 0.001675734251F, -0.009764690498F,
                               0.02840943039F, -0.05868825205F, 0.09229069167F, -0.1088045645F, 0.0822784339F,
                               0.003585438016F, -0.140240659F, 1.237512631F});
}
TANDEM_INLINE Vector<double> scaled_erfc(const Vector<double>& u) {
  return polynomial<double>(
      u, {4.43495907000958116e-10, 3.1103107198391287e-10,  -5.28428697963139392e-9, -3.74356803363456269e-9,
          3.8965452548985903e-8,   2.32619132766965172e-8,  -2.59106968779665695e-7, -5.72159725599098024e-8,
          1.75205797016631802e-6,  -9.73561901518266389e-7, -1.1444412439171723e-5,  2.23842403142244384e-5,
          5.16492113907028519e-5,  -2.90154080979527131e-4, 2.93713634285008126e-4,  1.75562585300172579e-3,
          -9.74657955250424297e-3, 2.83622774189406648e-2,  -5.86933985902123672e-2, 9.23043211603787671e-2,
          -1.08803930141717858e-1, 8.22767384901451591e-2,  3.58541548546377496e-3,  -1.40240598585546962e-1,
          1.23751263083782758});
}

struct Gelu {
  /// The distribution and its density times sqrt(2 pi), from one exponential.
  template <class T>
  struct Normal {
    Vector<T> distribution, bell;
  };
  template <class T>
  TANDEM_INLINE static Normal<T> normal(const Vector<T>& x) {
    constexpr T kRoot = T(0.70710678118654752440), kCentre = T(3.75);
    const auto far = magnitude(x) * kRoot;
    const auto z = far > T(1e4) ? all(T(1e4)) : far;  // where the tail is 0: infinity would give a NaN
    const auto bell = exp_of_negative(T(-0.5) * x * x);
    const auto inverse = T(1) / ((z + kCentre) * (T(1) + T(2) * z));
    const auto u = (z - kCentre) * (T(1) + T(2) * z) * inverse;
    const auto tail = T(0.5) * bell * scaled_erfc(u) * (z + kCentre) * inverse;
    return {x < T(0) ? tail : T(1) - tail, bell};
  }

  template <class T>
  TANDEM_INLINE static Vector<T> value(const Vector<T>& x) {
    return x * normal<T>(x).distribution;
  }

  template <class T>
  TANDEM_INLINE static Vector<T> slope(const Vector<T>& x) {
    constexpr T kDensity = T(0.39894228040143267794);
    const auto [distribution, bell] = normal<T>(x);
    return distribution + x * bell * kDensity;
  }
};

template <class S>
struct Arithmetic {
  using Type = S;
};
template <>
struct Arithmetic<uint16_t> {
  using Type = float;
};

// Numbers that do not fill a vector are copied to where one fits.
template <class Function, class S>
TANDEM_INLINE void activate_as(const S* x, int64_t count, S* y) {
  using T = typename Arithmetic<S>::Type;
  int64_t i = 0;
  for (; i + kWidth<T> <= count; i += kWidth<T>) store(Function::template value<T>(load(x + i)), y + i);
  if (i == count) return;
  S rest[kWidth<T>] = {};
  std::memcpy(rest, x + i, (count - i) * sizeof(S));
  store(Function::template value<T>(load(rest)), rest);
  std::memcpy(y + i, rest, (count - i) * sizeof(S));
}

template <class Function, class S>
TANDEM_INLINE void differentiate_as(const S* x, const S* gradient, int64_t count, S* out) {
  using T = typename Arithmetic<S>::Type;
  int64_t i = 0;
  for (; i + kWidth<T> <= count; i += kWidth<T>) {
    store(load(gradient + i) * Function::template slope<T>(load(x + i)), out + i);
  }
  if (i == count) return;
  S rest[kWidth<T>] = {}, factors[kWidth<T>] = {};
  std::memcpy(rest, x + i, (count - i) * sizeof(S));
  std::memcpy(factors, gradient + i, (count - i) * sizeof(S));
  store(load(factors) * Function::template slope<T>(load(rest)), rest);
  std::memcpy(out + i, rest, (count - i) * sizeof(S));
}

template <class S>
TANDEM_INLINE void activate_any(Curve curve, const S* x, int64_t count, S* y) {
  switch (curve) {
    case Curve::swish:
      return activate_as<Swish>(x, count, y);
    case Curve::mish:
      return activate_as<Mish>(x, count, y);
    case Curve::gelu:
      return activate_as<Gelu>(x, count, y);
  }
}

template <class S>
TANDEM_INLINE void differentiate_any(Curve curve, const S* x, const S* gradient, int64_t count, S* out) {
  switch (curve) {
    case Curve::swish:
      return differentiate_as<Swish>(x, gradient, count, out);
    case Curve::mish:
      return differentiate_as<Mish>(x, gradient, count, out);
    case Curve::gelu:
      return differentiate_as<Gelu>(x, gradient, count, out);
  }
}

}  // namespace

TANDEM_FOR_EACH_CPU void activate(Curve curve, const float* x, int64_t count, float* y) {
  activate_any(curve, x, count, y);
}
TANDEM_FOR_EACH_CPU void activate(Curve curve, const double* x, int64_t count, double* y) {
  activate_any(curve, x, count, y);
}
TANDEM_FOR_EACH_CPU void activate(Curve curve, const uint16_t* x, int64_t count, uint16_t* y) {
  activate_any(curve, x, count, y);
}

TANDEM_FOR_EACH_CPU void differentiate(Curve curve, const float* x, const float* gradient, int64_t count, float* out) {
  differentiate_any(curve, x, gradient, count, out);
}
TANDEM_FOR_EACH_CPU void differentiate(Curve curve, const double* x, const double* gradient, int64_t count,
                                       double* out) {
  differentiate_any(curve, x, gradient, count, out);
}
TANDEM_FOR_EACH_CPU void differentiate(Curve curve, const uint16_t* x, const uint16_t* gradient, int64_t count,
                                       uint16_t* out) {
  differentiate_any(curve, x, gradient, count, out);
}

}  // namespace tandem::kernels
