#pragma once
#include <algorithm>

#include "tandem/kernels/abn_kernels.h"
#include "tandem/kernels/detail/inverse_swish.h"
#include "tandem/kernels/detail/vector_math.h"

// The loops of abn_kernels.h, inlined into its functions. S is the type in memory; numbers are computed in
// AbnNumber<S>.
namespace tandem::kernels::detail {

/// Numbers of a row from a channel on. whole: the channels fill vectors; else the last vector is filled with zeros.
template <bool whole, class S>
TANDEM_INLINE Vector<AbnNumber<S>> load_part(const S* from, int64_t count) {
  if constexpr (whole) return load(from);
  constexpr int64_t kNumbers = kWidth<AbnNumber<S>>;
  S values[kNumbers] = {};
  std::memcpy(values, from, std::min(count, kNumbers) * sizeof(S));
  return load(values);
}

TANDEM_INLINE void store_as(const Vector<float>& values, float* to) { store<float>(values, to); }
TANDEM_INLINE void store_as(const Vector<double>& values, double* to) { store<double>(values, to); }
TANDEM_INLINE void store_as(const Vector<float>& values, uint16_t* to) { store(values, to); }

template <bool whole, class S>
TANDEM_INLINE void store_part(const Vector<AbnNumber<S>>& values, S* to, int64_t count) {
  if constexpr (whole) return store_as(values, to);
  constexpr int64_t kNumbers = kWidth<AbnNumber<S>>;
  S all[kNumbers];
  store_as(values, all);
  std::memcpy(to, all, std::min(count, kNumbers) * sizeof(S));
}

template <class T>
struct MaskBytes;
template <>
struct MaskBytes<float> {
  using Type = int8_t __attribute__((vector_size(16)));
};
template <>
struct MaskBytes<double> {
  using Type = int8_t __attribute__((vector_size(8)));
};

/// Eight bits of each eight lanes, by one product of eight bytes that are 0 or 1 shifted to their bit.
template <class T>
TANDEM_INLINE void store_sides(const typename Vectors<T>::Bits& mask, uint8_t* to) {
  const auto bytes = __builtin_convertvector(mask, typename MaskBytes<T>::Type);
  uint64_t eights[kWidth<T> / 8];
  std::memcpy(eights, &bytes, sizeof(eights));
  for (int64_t i = 0; i < kWidth<T> / 8; ++i) {
    to[i] = static_cast<uint8_t>(((eights[i] & 0x8040201008040201U) * 0x0101010101010101U) >> 56);
  }
}

/// 1 where the bit is set, else -1. (g++ 12 takes masks that are stored or combined apart into scalars.)
TANDEM_INLINE Vector<float> signs_of(const uint8_t* sides, float) {
  constexpr Vectors<float>::Bits kBits = {1,      1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                                          1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
  const auto own = (Vectors<float>::Bits{} + (sides[0] | sides[1] << 8)) & kBits;
  return own != 0 ? all(1.0F) : all(-1.0F);
}
TANDEM_INLINE Vector<double> signs_of(const uint8_t* sides, double) {
  constexpr Vectors<double>::Bits kBits = {1, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7};
  const auto own = (Vectors<double>::Bits{} + int64_t{sides[0]}) & kBits;
  return own != 0 ? all(1.0) : all(-1.0);
}

template <class T>
struct Inverted {
  Vector<T> y, slope;  // of the activation at y
};

/// S: the type that z was rounded to.
template <Invertible kind, class S, class T = AbnNumber<S>>
TANDEM_INLINE Inverted<T> inverted(const Vector<T>& z, T slope, const uint8_t* sides) {
  if constexpr (kind == Invertible::leaky_relu) {
    const auto factor = z < T(0) ? all(slope) : all(T(1));
    return {z < T(0) ? z * (T(1) / slope) : z, factor};
  } else if constexpr (kind == Invertible::elu) {
    // ln(1 + z) is inexact where 1 + z is rounded: (z - (u - 1)) / u restores the digits. A z of -1 has no
    // inverse: it counts as half a unit above.
    constexpr T kLeast = sizeof(S) == 2 ? T(2e-3) : sizeof(S) == 4 ? T(6e-8) : T(1.1e-16);
    const auto sum = z + T(1), u = sum < kLeast ? all(kLeast) : sum;
    const auto y = detail::log_of_normal(u) + (sum < kLeast ? Vector<T>{} : (z - (u - T(1))) / u);
    return {z < T(0) ? y : z, z < T(0) ? sum : all(T(1))};
  } else if constexpr (kind == Invertible::swish) {
    const auto [y, s] = inverse_swish(z, signs_of(sides, T{}));
    return {y, s + y * s * (T(1) - s)};
  } else {
    return {z, all(T(1))};
  }
}

template <Invertible kind, class T>
TANDEM_INLINE Vector<T> activated(const Vector<T>& y, T slope, uint8_t* sides) {
  if constexpr (kind == Invertible::leaky_relu) return y < T(0) ? y * slope : y;
  if constexpr (kind == Invertible::elu) return y < T(0) ? detail::expm1_of_negative(y < T(0) ? y : Vector<T>{}) : y;
  if constexpr (kind == Invertible::swish) {
    store_sides<T>(y >= detail::SwishMinimum<T>::kAt, sides);
    const auto e = exp_of_negative(-magnitude(y));
    return y * (y < T(0) ? e : all(T(1))) / (e + T(1));
  }
  return y;
}

template <bool whole, class S, class T = AbnNumber<S>>
TANDEM_INLINE void moments_as(const S* x, int64_t rows, int64_t channels, double* sum, double* square) {
  for (int64_t c = 0; c < channels; c += kWidth<T>) {
    const auto first = load_part<whole>(x + c, channels - c);
    Vector<T> sums{}, squares{};
    for (int64_t r = 0; r < rows; ++r) {
      const auto difference = load_part<whole>(x + r * channels + c, channels - c) - first;
      sums += difference;
      squares += difference * difference;
    }
    for (int64_t i = 0; i < std::min(kWidth<T>, channels - c); ++i) {
      sum[c + i] = sums[i];
      square[c + i] = squares[i];
    }
  }
}

template <Invertible kind, bool whole, class S, class T = AbnNumber<S>>
TANDEM_INLINE void forward_as(const AbnForward<T>& how, int64_t rows, int64_t channels, S* x, uint8_t* sides) {
  for (int64_t r = 0; r < rows; ++r) {
    S* row = x + r * channels;
    uint8_t* bits = kind == Invertible::swish ? sides + r * side_bytes(channels) : nullptr;
    for (int64_t c = 0; c < channels; c += kWidth<T>) {
      const int64_t left = channels - c;
      const auto y = load_part<whole>(row + c, left) * load_part<whole>(how.scale + c, left) +
                     load_part<whole>(how.offset + c, left);
      store_part<whole, S>(activated<kind, T>(y, how.slope, bits + c / 8), row + c, left);
    }
  }
}

/// What sums are added in.
template <class T, bool wide>
struct Sums {
  using Type = Vector<T>;
};
template <>
struct Sums<float, true> {
  using Type = double __attribute__((vector_size(128)));
};

template <Invertible kind, bool whole, bool wide, bool unfolds = false, class S, class T = AbnNumber<S>>
TANDEM_INLINE void sums_as(const AbnBackward<S>& in, int64_t rows, int64_t channels, double* sum, double* product,
                           const AbnUnfolded<S>& to = {}) {
  for (int64_t c = 0; c < channels; c += kWidth<T>) {
    const int64_t left = channels - c;
    const auto centre = load_part<whole>(in.centre + c, left);
    typename Sums<T, wide>::Type sums{}, products{};
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = r * channels + c;
      const auto [y, slope] = inverted<kind, S>(load_part<whole>(in.z + at, left), in.slope,
                                                in.sides + (in.sides ? r * side_bytes(channels) + c / 8 : 0));
      const Vector<T> dy = load_part<whole>(in.gradient + at, left) * slope;
      if constexpr (unfolds) {
        store_part<whole, S>(y, to.y + at, left);
        store_part<whole, S>(dy, to.dy + at, left);
      }
      const auto dy_wide = __builtin_convertvector(dy, typename Sums<T, wide>::Type);
      const Vector<T> distance = y - centre;
      sums += dy_wide;
      products += dy_wide * __builtin_convertvector(distance, typename Sums<T, wide>::Type);
    }
    for (int64_t i = 0; i < std::min(kWidth<T>, left); ++i) {
      sum[c + i] = sums[i];
      product[c + i] = products[i];
    }
  }
}

template <Invertible kind, bool whole, class S, class T = AbnNumber<S>>
TANDEM_INLINE void apply_as(const AbnBackward<S>& in, const AbnApply<T>& how, int64_t rows, int64_t channels, S* out) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < channels; c += kWidth<T>) {
      const int64_t at = r * channels + c, left = channels - c;
      const auto [y, slope] = inverted<kind, S>(load_part<whole>(in.z + at, left), in.slope,
                                                in.sides + (in.sides ? r * side_bytes(channels) + c / 8 : 0));
      const auto dy = load_part<whole>(in.gradient + at, left) * slope;
      const auto dx = dy * load_part<whole>(how.factor + c, left) +
                      ((y - load_part<whole>(in.centre + c, left)) * load_part<whole>(how.slope + c, left) +
                       load_part<whole>(how.shift + c, left));
      store_part<whole, S>(dx, out + at, left);
    }
  }
}

template <bool whole, class S>
TANDEM_INLINE void forward_of(const AbnForward<AbnNumber<S>>& how, int64_t rows, int64_t channels, S* x,
                              uint8_t* sides) {
  switch (how.kind) {
    case Invertible::identity:
      return forward_as<Invertible::identity, whole>(how, rows, channels, x, sides);
    case Invertible::leaky_relu:
      return forward_as<Invertible::leaky_relu, whole>(how, rows, channels, x, sides);
    case Invertible::elu:
      return forward_as<Invertible::elu, whole>(how, rows, channels, x, sides);
    case Invertible::swish:
      return forward_as<Invertible::swish, whole>(how, rows, channels, x, sides);
  }
}

template <bool whole, bool wide, class S>
TANDEM_INLINE void sums_of(const AbnBackward<S>& in, int64_t rows, int64_t channels, double* sum, double* product) {
  switch (in.kind) {
    case Invertible::identity:
      return sums_as<Invertible::identity, whole, wide>(in, rows, channels, sum, product);
    case Invertible::leaky_relu:
      return sums_as<Invertible::leaky_relu, whole, wide>(in, rows, channels, sum, product);
    case Invertible::elu:
      return sums_as<Invertible::elu, whole, wide>(in, rows, channels, sum, product);
    case Invertible::swish:
      return sums_as<Invertible::swish, whole, wide>(in, rows, channels, sum, product);
  }
}

template <bool whole, class S>
TANDEM_INLINE void unfold_as(const AbnBackward<S>& in, bool wide, int64_t rows, int64_t channels, double* sum,
                             double* product, const AbnUnfolded<S>& to) {
  constexpr auto kKind = Invertible::swish;
  if (wide) return sums_as<kKind, whole, true, true>(in, rows, channels, sum, product, to);
  sums_as<kKind, whole, !whole, true>(in, rows, channels, sum, product, to);
}

template <bool whole, class S>
TANDEM_INLINE void apply_of(const AbnBackward<S>& in, const AbnApply<AbnNumber<S>>& how, int64_t rows, int64_t channels,
                            S* out) {
  switch (in.kind) {
    case Invertible::identity:
      return apply_as<Invertible::identity, whole>(in, how, rows, channels, out);
    case Invertible::leaky_relu:
      return apply_as<Invertible::leaky_relu, whole>(in, how, rows, channels, out);
    case Invertible::elu:
      return apply_as<Invertible::elu, whole>(in, how, rows, channels, out);
    case Invertible::swish:
      return apply_as<Invertible::swish, whole>(in, how, rows, channels, out);
  }
}

template <class S, class T = AbnNumber<S>>
TANDEM_INLINE void invert_rows(const S* z, const uint8_t* sides, int64_t rows, int64_t channels, S* y) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < channels; c += kWidth<T>) {
      const int64_t at = r * channels + c, left = channels - c;
      const auto signs = signs_of(sides + r * side_bytes(channels) + c / 8, T{});
      store_part<false, S>(inverse_swish(load_part<false>(z + at, left), signs).x, y + at, left);
    }
  }
}

template <class S>
TANDEM_INLINE bool fills_vectors(int64_t channels) {
  return channels % kWidth<AbnNumber<S>> == 0;
}

}  // namespace tandem::kernels::detail
