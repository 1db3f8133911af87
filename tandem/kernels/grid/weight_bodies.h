#pragma once
#include "tandem/kernels/grid/body.h"

/// Bodies of score_kernels.h for rows of weights or features: a pair of indices (row, pack) owns neighbouring columns.
namespace tandem::kernels {

/// out = gradient + along * weight. Index i: a pack of a row.
template <class T, class S>
struct AddAlongBody {
  static constexpr int kNumbers = kWidePack<T>;

  const S* gradient;
  const T *weight, *along;
  int64_t columns, packs;  // of a row
  T* out;

  TANDEM_BODY void operator()(int64_t i) const {
    const int64_t row = i / packs, column = i % packs * kNumbers, at = row * columns + column, left = columns - column;
    const auto weights = load_pack<kNumbers>(weight + at, left);
    auto sums = load_pack<kNumbers>(gradient + at, left);
    const T factor = along[row];
    TANDEM_UNROLL
    for (int k = 0; k < kNumbers; ++k) sums.at[k] += weights.at[k] * factor;
    store_pack(sums, out + at, left);
  }
};

/// The sum of a pack's products with the weight.
template <class T, class S>
struct DotValue {
  static constexpr int kNumbers = kWidePack<T>;

  const S* gradient;
  const T* weight;
  int64_t columns;

  TANDEM_BODY T operator()(int64_t row, int64_t pack) const {
    const int64_t column = pack * kNumbers, at = row * columns + column, left = columns - column;
    const auto a = load_pack<kNumbers>(gradient + at, left);
    const auto b = load_pack<kNumbers>(weight + at, left);
    T sum = 0;
    TANDEM_UNROLL
    for (int k = 0; k < kNumbers; ++k) sum += a.at[k] * b.at[k];
    return sum;
  }
};

/// along = -factor^2 (along + product).
template <class T>
struct ProjectionOut {
  const T* factors;
  T* along;

  TANDEM_BODY void operator()(int64_t row, T product) const {
    along[row] = -factors[row] * factors[row] * (along[row] + product);
  }
};

/// sum += values, in bfloat16.
struct AddRoundedBody {
  static constexpr int kNumbers = kWidePack<uint16_t>;

  const uint16_t* values;
  int64_t count;
  float* sum;

  TANDEM_BODY void operator()(int64_t i) const {
    const int64_t at = i * kNumbers, left = count - at;
    store_pack(Add{}(load_pack<kNumbers>(sum + at, left), load_pack<kNumbers>(values + at, left)), sum + at, left);
  }
};

/// The sum of a pack's squares; writes the pack in bfloat16 to `rounded` unless it is null.
template <class T>
struct SquareValue {
  static constexpr int kNumbers = kWidePack<T>;

  const T* values;
  int64_t columns;
  uint16_t* rounded;

  TANDEM_BODY T operator()(int64_t row, int64_t pack) const {
    const int64_t column = pack * kNumbers, at = row * columns + column, left = columns - column;
    const auto own = load_pack<kNumbers>(values + at, left);
    if constexpr (sizeof(T) == sizeof(float)) {
      if (rounded != nullptr) store_pack(own, rounded + at, left);
    }
    T sum = 0;
    TANDEM_UNROLL
    for (int k = 0; k < kNumbers; ++k) sum += own.at[k] * own.at[k];
    return sum;
  }
};

template <class T>
struct InverseLengthOut {
  T* out;

  TANDEM_BODY void operator()(int64_t row, T square) const { out[row] = T(1) / larger(std::sqrt(square), T(1e-12)); }
};

}  // namespace tandem::kernels
