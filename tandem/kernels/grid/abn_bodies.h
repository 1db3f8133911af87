#pragma once
#include "tandem/kernels/grid/activation_bodies.h"
#include "tandem/kernels/grid/inverse_swish_bodies.h"

/// Bodies of abn_kernels.h, and of the arithmetic of single channels between its passes. An index of a body over rows
/// owns kAbnNumbers neighbouring channels of a row, and with them a whole byte of side bits.
namespace tandem::kernels {

inline constexpr int kAbnNumbers = 8;

/// y by z.
template <class T>
TANDEM_BODY T abn_activated(Invertible kind, T slope, T y) {
  switch (kind) {
    case Invertible::leaky_relu:
      return y < T(0) ? y * slope : y;
    case Invertible::elu:
      return y < T(0) ? std::expm1(y) : y;
    case Invertible::swish:
      return SwishCurve::value(y);
    default:
      return y;
  }
}

template <class T>
struct AbnInverse {
  T y, slope;  // of the activation at y
};

/// S: the type that z was rounded to. An elu of -1 has no inverse: it counts as half a unit above.
template <class S, class T = AbnNumber<S>>
TANDEM_BODY AbnInverse<T> abn_inverted(Invertible kind, T slope, T z, bool right) {
  constexpr T kLeast = sizeof(S) == 2 ? T(2e-3) : sizeof(S) == 4 ? T(6e-8) : T(1.1e-16);
  switch (kind) {
    case Invertible::leaky_relu:
      return z < T(0) ? AbnInverse<T>{z * (T(1) / slope), slope} : AbnInverse<T>{z, T(1)};
    case Invertible::elu:
      if (!(z < T(0))) return {z, T(1)};
      return {z + T(1) < kLeast ? std::log(kLeast) : std::log1p(z), z + T(1)};
    case Invertible::swish: {
      const auto root = inverse_swish(z, right);
      return {root.x, root.s + z * (T(1) - root.s)};
    }
    default:
      return {z, T(1)};
  }
}

template <class S>
struct AbnForwardBody {
  using T = AbnNumber<S>;

  AbnForward<T> how;
  int64_t channels, packs;  // of a row
  S* x;
  uint8_t* sides;  // null: no side bits

  TANDEM_BODY void operator()(int64_t i) const {
    const int64_t row = i / packs, c = i % packs * kAbnNumbers, left = channels - c;
    S* at = x + row * channels + c;
    auto values = load_pack<kAbnNumbers>(at, left);
    const auto scale = load_pack<kAbnNumbers>(how.scale + c, left),
               offset = load_pack<kAbnNumbers>(how.offset + c, left);
    unsigned bits = 0;
    TANDEM_UNROLL
    for (int k = 0; k < kAbnNumbers; ++k) {
      const T y = values.at[k] * scale.at[k] + offset.at[k];
      bits |= static_cast<unsigned>(y >= SwishLeast<T>::kAt) << k;
      values.at[k] = abn_activated(how.kind, how.slope, y);
    }
    store_pack(values, at, left);
    if (sides != nullptr) sides[i] = static_cast<uint8_t>(bits);
  }
};

template <class T, int n>
struct AbnTerms {
  Pack<T, n> y, dy;
};

/// y and dy of neighbouring channels of a row.
template <class S>
struct AbnInverted {
  using T = AbnNumber<S>;

  AbnBackward<S> in;
  int64_t channels, row_sides;  // bytes

  template <int n>
  TANDEM_BODY AbnTerms<T, n> terms(int64_t row, int64_t c) const {
    const int64_t at = row * channels + c, left = channels - c;
    const auto z = load_pack<n>(in.z + at, left);
    AbnTerms<T, n> of{z, load_pack<n>(in.gradient + at, left)};
    const unsigned bits = in.sides != nullptr && left > 0 ? in.sides[row * row_sides + c / 8] >> (c % 8) : 0;
    TANDEM_UNROLL
    for (int k = 0; k < n; ++k) {
      const auto own = abn_inverted<S>(in.kind, in.slope, z.at[k], (bits >> k & 1) != 0);
      of.y.at[k] = own.y;
      of.dy.at[k] *= own.slope;
    }
    return of;
  }
};

/// Channels of a sum. Fewer than of other bodies: sums are in double.
inline constexpr int kAbnSums = 4;

struct AbnSums {
  Pack<double, kAbnSums> sum, product;
};

struct AddAbnSums {
  TANDEM_BODY AbnSums operator()(const AbnSums& a, const AbnSums& b) const {
    return {Add{}(a.sum, b.sum), Add{}(a.product, b.product)};
  }
};

/// A row's terms of the sums; writes y and dy where `to` has places for them.
template <class S>
struct AbnSumsValue {
  AbnInverted<S> inverted;
  AbnUnfolded<S> to;

  TANDEM_BODY AbnSums operator()(int64_t row, int64_t pack) const {
    const int64_t c = pack * kAbnSums, left = inverted.channels - c;
    const auto of = inverted.template terms<kAbnSums>(row, c);
    const auto centre = load_pack<kAbnSums>(inverted.in.centre + c, left);
    if (to.y != nullptr) {
      store_pack(of.y, to.y + row * inverted.channels + c, left);
      store_pack(of.dy, to.dy + row * inverted.channels + c, left);
    }
    AbnSums sums;
    TANDEM_UNROLL
    for (int k = 0; k < kAbnSums; ++k) {
      const double dy = of.dy.at[k];
      sums.sum.at[k] = dy;
      sums.product.at[k] = dy * (double{of.y.at[k]} - double{centre.at[k]});
    }
    return sums;
  }
};

struct AbnSumsOut {
  int64_t channels;
  double *sum, *product;

  TANDEM_BODY void operator()(int64_t pack, const AbnSums& sums) const {
    const int64_t c = pack * kAbnSums;
    store_pack(sums.sum, sum + c, channels - c);
    store_pack(sums.product, product + c, channels - c);
  }
};

template <class S>
struct AbnApplyBody {
  using T = AbnNumber<S>;

  AbnInverted<S> inverted;
  AbnApply<T> how;
  int64_t packs;  // of a row
  S* out;

  TANDEM_BODY void operator()(int64_t i) const {
    const int64_t row = i / packs, c = i % packs * kAbnNumbers, left = inverted.channels - c;
    auto [y, dx] = inverted.template terms<kAbnNumbers>(row, c);
    const auto centre = load_pack<kAbnNumbers>(inverted.in.centre + c, left);
    const auto factor = load_pack<kAbnNumbers>(how.factor + c, left),
               slope = load_pack<kAbnNumbers>(how.slope + c, left), shift = load_pack<kAbnNumbers>(how.shift + c, left);
    TANDEM_UNROLL
    for (int k = 0; k < kAbnNumbers; ++k) {
      dx.at[k] = dx.at[k] * factor.at[k] + ((y.at[k] - centre.at[k]) * slope.at[k] + shift.at[k]);
    }
    store_pack(dx, out + row * inverted.channels + c, left);
  }
};

}  // namespace tandem::kernels
