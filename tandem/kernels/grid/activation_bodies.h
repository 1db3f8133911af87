#pragma once
#include "tandem/kernels/activation_kernels.h"
#include "tandem/kernels/grid/body.h"

/// Bodies of activation_kernels.h. A function has a value and a slope; e^-|x| and e^(-x^2 / 2) never overflow.
namespace tandem::kernels {

struct SwishCurve {
  template <class T>
  TANDEM_BODY static T value(T x) {
    const T e = std::exp(-std::fabs(x));
    return x * (x < T(0) ? e : T(1)) / (e + T(1));
  }

  /// s + x s (1 - s)
  template <class T>
  TANDEM_BODY static T slope(T x) {
    const T e = std::exp(-std::fabs(x)), inverse = T(1) / (e + T(1)), other = e * inverse;
    return (x < T(0) ? other : inverse) + x * (inverse * other);
  }
};

/// tanh(ln(1 + w)) = n / (n + 2) with w = e^x, n = w (w + 2); above 0 both are divided by w^2.
struct MishCurve {
  template <class T>
  struct Ratio {
    T e, n, difference;

    TANDEM_BODY explicit Ratio(T x) : e(std::exp(-std::fabs(x))) {
      n = x < T(0) ? e * (e + T(2)) : T(1) + T(2) * e;
      difference = x < T(0) ? T(2) : T(2) * e * e;
    }
  };

  template <class T>
  TANDEM_BODY static T value(T x) {
    const Ratio<T> of(x);
    return x * of.n / (of.n + of.difference);
  }

  /// t + x s (1 - t^2) with 1 - t^2 = (d - n) (d + n) / d^2, t = n / d, which does not cancel
  template <class T>
  TANDEM_BODY static T slope(T x) {
    const Ratio<T> of(x);
    const T d = of.n + of.difference, s = (x < T(0) ? of.e : T(1)) / (of.e + T(1));
    return (of.n + x * s * of.difference * (d + of.n) / d) / d;
  }
};

struct GeluCurve {
  template <class T>
  TANDEM_BODY static T distribution(T x) {
    return T(0.5) * std::erfc(x * T(-0.70710678118654752440));
  }

  template <class T>
  TANDEM_BODY static T value(T x) {
    return x * distribution(x);
  }

  template <class T>
  TANDEM_BODY static T slope(T x) {
    return distribution(x) + x * std::exp(T(-0.5) * x * x) * T(0.39894228040143267794);
  }
};

/// Index i: pack i of the numbers.
template <class Function, class S>
struct ActivateBody {
  static constexpr int kNumbers = kWidePack<S>;

  const S* x;
  int64_t count;
  S* y;

  TANDEM_BODY void operator()(int64_t i) const {
    const int64_t at = i * kNumbers, left = count - at;
    auto values = load_pack<kNumbers>(x + at, left);
    TANDEM_UNROLL
    for (auto& value : values.at) value = Function::value(value);
    store_pack(values, y + at, left);
  }
};

template <class Function, class S>
struct DifferentiateBody {
  static constexpr int kNumbers = kWidePack<S>;

  const S *x, *gradient;
  int64_t count;
  S* out;

  TANDEM_BODY void operator()(int64_t i) const {
    const int64_t at = i * kNumbers, left = count - at;
    const auto values = load_pack<kNumbers>(x + at, left);
    auto products = load_pack<kNumbers>(gradient + at, left);
    TANDEM_UNROLL
    for (int k = 0; k < kNumbers; ++k) products.at[k] *= Function::slope(values.at[k]);
    store_pack(products, out + at, left);
  }
};

}  // namespace tandem::kernels
