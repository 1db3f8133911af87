#pragma once
#include <cstdint>

// Operations on a block of products between two GEMMs, for the rows of one thread: plain C++ on contiguous memory. T is
// float or double. S, the type in which products are stored, is T, or uint16_t holding bfloat16. A block is [rows,
// columns], with a class per row and a sample per column; `columns` must be a multiple of kColumnUnit. The score of a
// class for a sample is product * factor[class].
namespace tandem::kernels {

inline constexpr int64_t kColumnUnit = 16;

/// Rounds up to a multiple of kColumnUnit.
inline int64_t padded(int64_t columns) { return (columns + kColumnUnit - 1) / kColumnUnit * kColumnUnit; }

template <class T, class S>
struct Block {
  S* products;
  const T* factors;
  int64_t rows, columns;
};

/// Running values of each sample over the classes added so far. Each array is [columns].
template <class T>
struct RunningRows {
  T* maximum;  // must begin with the lowest number of T
  T* sum;      // of exp(score - maximum); must begin with 0
  T* total;    // of scores; must begin with 0; null: not computed
};

/// Adds the block's classes to `running`.
template <class T, class S>
void add_block(const Block<T, S>& block, const RunningRows<T>& running);

/// The terms of a score's gradient: share * exp(min(score - log_sum, 0)) - floor.
template <class T>
struct ShareRows {
  const T *log_sum, *share, *floor;  // [columns] each
};

/// Replaces the products by their gradient, which is 0 where the score is above `filter`. The sums of score * gradient
/// of the score over a row are written to `along_classes` [rows]; those over a column are added to `along_samples`
/// [columns].
template <class T, class S>
void differentiate_block(const Block<T, S>& block, const ShareRows<T>& shares, T filter, T* along_classes,
                         T* along_samples);

/// out[row] = gradient[row] + along[row] * weight[row]; `out` may be `gradient`.
template <class T, class S>
void add_along(const S* gradient, const T* weight, const T* along, int64_t rows, int64_t columns, T* out);

/// sum[i] += values[i]; the values are bfloat16.
void add_rounded(const uint16_t* values, int64_t count, float* sum);

/// out[row] = 1 / max(Euclidean length of the row, 1e-12).
template <class T>
void inverse_lengths(const T* values, int64_t rows, int64_t columns, T* out);

/// Like inverse_lengths(), and also writes the values as bfloat16 to `rounded`.
void round_rows(const float* values, int64_t rows, int64_t columns, uint16_t* rounded, float* inverse_lengths);

}  // namespace tandem::kernels
