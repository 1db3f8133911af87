#pragma once
#include <cstdint>
#include <type_traits>

/// Batch normalisation with an invertible activation, over rows of channels ([rows, channels], contiguous), on one
/// thread. S, the type in memory, is float, double, or uint16_t holding bfloat16, for which the arithmetic and all
/// numbers of a channel are float. Backward sees the result z alone: y = g xh + b comes from z by the inverse
/// activation.
///
///   forward   x ── y = x scale + offset ── z = f(y), written over x
///   backward  z ── y = f^-1(z), dy = dz f'(y) ──▶ sums over rows of dy and dy (y - centre), then dx
namespace tandem::kernels {

enum class Invertible {
  identity,
  leaky_relu,  // y < 0: slope y
  elu,         // y < 0: e^y - 1
  swish,       // y s(y); two branches meet at its minimum, and a bit for each number tells which
};

/// Bytes of a row's bits: for swish.
inline int64_t side_bytes(int64_t channels) { return (channels + 15) / 16 * 2; }

template <class S>
using AbnNumber = std::conditional_t<std::is_same_v<S, uint16_t>, float, S>;

template <class T>
struct AbnForward {
  Invertible kind;
  T slope;                  // of leaky_relu
  const T *scale, *offset;  // [channels]
};

/// sum[c] = sum of x[r, c] - x[0, c], square[c] = sum of the squares of these differences.
template <class S>
void abn_moments(const S* x, int64_t rows, int64_t channels, double* sum, double* square);

/// z = f(x * scale + offset), over x. `sides` ([rows, side_bytes(channels)]) is written for swish only: bit c % 8 of
/// byte c / 8 of a row is 1 where y is right of the minimum.
template <class S>
void abn_forward(const AbnForward<AbnNumber<S>>& how, int64_t rows, int64_t channels, S* x, uint8_t* sides);

template <class S>
struct AbnBackward {
  Invertible kind;
  AbnNumber<S> slope;
  const S *z, *gradient;  // of z
  const uint8_t* sides;
  const AbnNumber<S>* centre;  // [channels]

  /// The same from a later row on.
  AbnBackward from_row(int64_t row, int64_t channels) const {
    const int64_t at = row * channels;
    return {kind, slope, z + at, gradient + at, sides ? sides + row * side_bytes(channels) : nullptr, centre};
  }
};

/// sum[c] = sum of dy, product[c] = sum of dy * (y - centre). `wide`: adds in double.
template <class S>
void abn_gradient_sums(const AbnBackward<S>& in, bool wide, int64_t rows, int64_t channels, double* sum,
                       double* product);

template <class T>
struct AbnUnfolded {
  T *y, *dy;  // [rows, channels]
};

/// abn_gradient_sums() of swish, of float or double, that also writes y and dy, which may be written over z and the
/// gradient. With these for z and gradient, abn_gradient_apply() of the identity gives the bits that it gives for
/// swish, without inverting again.
template <class T>
void abn_unfold_swish(const AbnBackward<T>& in, bool wide, int64_t rows, int64_t channels, double* sum, double* product,
                      const AbnUnfolded<T>& to);

template <class T>
struct AbnApply {
  const T *factor, *slope, *shift;
};

/// out = dy * factor + (y - centre) * slope + shift, each [channels]; out may be the gradient.
template <class S>
void abn_gradient_apply(const AbnBackward<S>& in, const AbnApply<AbnNumber<S>>& how, int64_t rows, int64_t channels,
                        S* out);

/// y of z = y s(y) on the side that the bits name, for rows of one block: what backward uses. T is float or double.
/// Error: that of z's own rounding divided by the slope, at most 5e-4 (float) or 3e-8 (double), at the minimum, where
/// the slope is 0.
template <class T>
void invert_swish(const T* z, const uint8_t* sides, int64_t rows, int64_t channels, T* y);

}  // namespace tandem::kernels
