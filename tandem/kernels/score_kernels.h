#pragma once
#include <cstdint>

// What is done to a block of products between its GEMMs, one thread's rows of it: plain C++ on contiguous memory.
// T is float or double; S, in which products are stored, is T or bfloat16's bits. A block is [rows, columns] with a
// class a row and a sample a column; `columns` is a multiple of kColumnUnit. A class's score of a sample is product *
// factor[class].
namespace tandem::kernels {

inline constexpr int64_t kColumnUnit = 16;

/// Rounds up.
inline int64_t padded(int64_t columns) { return (columns + kColumnUnit - 1) / kColumnUnit * kColumnUnit; }

template <class T, class S>
struct Block {
  S* products;
  const T* factors;
  int64_t rows, columns;
};

/// Of each sample, over the classes seen so far. [columns] each.
template <class T>
struct RunningRows {
  T* maximum;  // begins with the lowest number
  T* sum;      // of exp(score - maximum); begins with 0
  T* total;    // of scores; null: not wanted
};

/// Adds the block's classes.
template <class T, class S>
void add_block(const Block<T, S>& block, const RunningRows<T>& running);

/// What a score's gradient is made of: share * exp(min(score - log_sum, 0)) - floor.
template <class T>
struct ShareRows {
  const T *log_sum, *share, *floor;  // [columns] each
};

/// The products become the gradient of the products, which is 0 where the score is above `filter`; `along_classes`
/// [rows] is set to, and `along_samples` [columns] raised by, the sum of gradient of the score times score.
template <class T, class S>
void differentiate_block(const Block<T, S>& block, const ShareRows<T>& shares, T filter, T* along_classes,
                         T* along_samples);

/// out[row] = gradient[row] + along[row] * weight[row]; `out` may be `gradient`.
template <class T, class S>
void add_along(const S* gradient, const T* weight, const T* along, int64_t rows, int64_t columns, T* out);

/// sum[i] += values[i], bfloat16's bits.
void add_rounded(const uint16_t* values, int64_t count, float* sum);

/// out[row] = 1 / max(length of the row, 1e-12).
template <class T>
void inverse_lengths(const T* values, int64_t rows, int64_t columns, T* out);

/// The same, and the values in bfloat16's bits.
void round_rows(const float* values, int64_t rows, int64_t columns, uint16_t* rounded, float* inverse_lengths);

}  // namespace tandem::kernels
