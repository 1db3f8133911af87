#pragma once
#include "tandem/kernels/grid/score_bodies.h"

/// Softmax by powers of two, for passes that never store a gradient. A tile is a block's classes for one sample:
///
///   k = ceil(log2(e) * largest score of the tile)       an integer for each tile
///   E = 2^(log2(e) * score - k)  in 0 .. 1              is written over the product, rounded to its type
///   share * exp(score - log_sum) = c * E                with c = share * 2^(k - log2(e) * log_sum), a number a tile
///
/// The running sum counts E as rounded, so that the probabilities of a sample add to 1, and is in units of 2^exponent:
/// merging two of them rounds nothing but their sum.
namespace tandem::kernels {

/// What an exponent is at most; scores up to 3e8 fit.
inline constexpr int32_t kFarExponent = 1 << 29;

/// Running values of each sample over the classes added so far, [columns] each.
template <class T>
struct ExponentRows {
  int32_t* exponent;  // must begin with -kFarExponent
  T* sum;             // of exp(score), in units of 2^exponent; must begin with 0
};

/// log2(e) in two parts.
template <class T>
struct Log2E {
  static constexpr double kWhole = 1.4426950408889634074;
  static constexpr T kHigh = T(kWhole);
  static constexpr T kLow = sizeof(T) == 4 ? T(kWhole - static_cast<double>(kHigh)) : T(2.0355273740931033e-17);
};

/// log2(e) * x + shift
template <class T>
TANDEM_BODY T binary_logarithm(T x, T shift) {
  return std::fma(x, Log2E<T>::kHigh, shift) + x * Log2E<T>::kLow;
}

/// 2^n for n <= 0; below the least normal number 0.
template <class T>
TANDEM_BODY T power_of_two(int32_t n) {
  if constexpr (sizeof(T) == 4) {
    const uint32_t bits = n < -126 ? 0 : static_cast<uint32_t>(127 + n) << 23;
    T power;
    memcpy(&power, &bits, sizeof(power));
    return power;
  } else {
    const uint64_t bits = n < -1022 ? 0 : static_cast<uint64_t>(1023 + n) << 52;
    T power;
    memcpy(&power, &bits, sizeof(power));
    return power;
  }
}

template <class T, class S>
struct ScoreValue {
  Block<T, S> block;

  TANDEM_BODY ScorePack<T> operator()(int64_t row, int64_t pack) const {
    return load_scores<kScoreSums<T>>(block, row, pack * kScoreSums<T>);
  }
};

/// k of each tile.
template <class T>
struct ExponentOut {
  int32_t* exponents;
  int64_t columns;

  TANDEM_BODY void operator()(int64_t pack, const ScorePack<T>& maximum) const {
    constexpr T kFar = kFarExponent;
    TANDEM_UNROLL
    for (int k = 0; k < kScoreSums<T>; ++k) {
      const int64_t column = pack * kScoreSums<T> + k;
      const T exponent = std::ceil(binary_logarithm(maximum.at[k], T(0)));
      if (column < columns) exponents[column] = static_cast<int32_t>(larger(smaller(exponent, kFar), -kFar));
    }
  }
};

/// Writes E over the products, and returns E as rounded.
template <class T, class S>
struct ExponentialValue {
  Block<T, S> block;
  const int32_t* exponents;

  TANDEM_BODY ScorePack<T> operator()(int64_t row, int64_t pack) const {
    const int64_t column = pack * kScoreSums<T>, left = block.columns - column;
    auto values = load_scores<kScoreSums<T>>(block, row, column);
    TANDEM_UNROLL
    for (int k = 0; k < kScoreSums<T>; ++k) {
      const T exponent = static_cast<T>(k < left ? exponents[column + k] : 0);
      S rounded;
      round_to(std::exp2(binary_logarithm(values.at[k], -exponent)), rounded);
      values.at[k] = widened(rounded);
    }
    store_pack(values, block.products + row * block.columns + column, left);
    return values;
  }
};

/// The same again, with known exponents, times the classes' factors: f E. Index i: a pack of a row.
template <class T, class S>
struct ExponentiateAgainBody {
  Block<T, S> block;
  const int32_t* exponents;
  int64_t packs;  // of a row

  TANDEM_BODY void operator()(int64_t i) const {
    const int64_t row = i / packs, column = i % packs * kScoreSums<T>, left = block.columns - column;
    auto values = load_scores<kScoreSums<T>>(block, row, column);
    TANDEM_UNROLL
    for (int k = 0; k < kScoreSums<T>; ++k) {
      const T exponent = static_cast<T>(k < left ? exponents[column + k] : 0);
      S rounded;  // as the sums counted it
      round_to(std::exp2(binary_logarithm(values.at[k], -exponent)), rounded);
      values.at[k] = block.factors[row] * widened(rounded);
    }
    store_pack(values, block.products + row * block.columns + column, left);
  }
};

/// Merges a tile's sum into the running one.
template <class T>
struct ExponentialOut {
  const int32_t* exponents;
  ExponentRows<T> running;
  int64_t columns;

  TANDEM_BODY void operator()(int64_t pack, const ScorePack<T>& sums) const {
    TANDEM_UNROLL
    for (int k = 0; k < kScoreSums<T>; ++k) {
      const int64_t column = pack * kScoreSums<T> + k;
      if (column >= columns) return;
      const int32_t own = exponents[column], before = running.exponent[column], most = larger(own, before);
      running.exponent[column] = most;
      running.sum[column] =
          running.sum[column] * power_of_two<T>(before - most) + sums.at[k] * power_of_two<T>(own - most);
    }
  }
};

/// c of each sample, for one tile.
template <class T>
struct TileScaleBody {
  const int32_t* exponents;
  const T *log_sum, *share;
  T* scale;

  TANDEM_BODY void operator()(int64_t i) const {
    scale[i] = share[i] * std::exp2(binary_logarithm(-log_sum[i], static_cast<T>(exponents[i])));
  }
};

}  // namespace tandem::kernels
