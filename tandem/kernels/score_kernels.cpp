#include "tandem/kernels/score_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tandem/base/vectors.h"
#include "tandem/kernels/detail/vector_math.h"

namespace tandem::kernels {
namespace {

using detail::all;
using detail::exp_of_negative;
template <class T>
constexpr int64_t kLanes = detail::kWidth<T>;

template <class T>
TANDEM_INLINE Vector<T> larger(const Vector<T>& a, const Vector<T>& b) {
  return a > b ? a : b;
}

template <class T>
TANDEM_INLINE T sum_of(const Vector<T>& values) {
  T sum = 0;
  for (int64_t i = 0; i < kLanes<T>; ++i) sum += values[i];
  return sum;
}

template <class T, class S>
TANDEM_INLINE Vector<T> score_at(const Block<T, S>& block, int64_t row, int64_t column) {
  return load(block.products + row * block.columns + column) * block.factors[row];
}

/// Works on one tile of columns at a time, so that the running values stay in registers over all rows.
template <int kTile, class T, class S>
TANDEM_INLINE void add_columns(const Block<T, S>& block, const RunningRows<T>& running, int64_t column) {
  Vector<T> maximum[kTile], sum[kTile], total[kTile];
  for (int k = 0; k < kTile; ++k) maximum[k] = all(std::numeric_limits<T>::lowest());
  for (int64_t row = 0; row < block.rows; ++row) {
    for (int k = 0; k < kTile; ++k) maximum[k] = larger<T>(maximum[k], score_at(block, row, column + k * kLanes<T>));
  }
  for (int k = 0; k < kTile; ++k) {
    T* at = running.maximum + column + k * kLanes<T>;
    const auto before = load(at);
    maximum[k] = larger<T>(maximum[k], before);
    store(maximum[k], at);
    sum[k] = load(running.sum + column + k * kLanes<T>) * exp_of_negative(before - maximum[k]);
    total[k] = Vector<T>{};
  }
  for (int64_t row = 0; row < block.rows; ++row) {
    for (int k = 0; k < kTile; ++k) {
      const auto score = score_at(block, row, column + k * kLanes<T>);
      sum[k] += exp_of_negative(score - maximum[k]);
      total[k] += score;
    }
  }
  for (int k = 0; k < kTile; ++k) {
    const int64_t at = column + k * kLanes<T>;
    store(sum[k], running.sum + at);
    if (running.total != nullptr) store(load(running.total + at) + total[k], running.total + at);
  }
}

template <class T, class S>
TANDEM_INLINE void add_block_as(const Block<T, S>& block, const RunningRows<T>& running) {
  constexpr int kTile = 4;
  int64_t column = 0;
  for (; column + kTile * kLanes<T> <= block.columns; column += kTile * kLanes<T>) {
    add_columns<kTile>(block, running, column);
  }
  for (; column < block.columns; column += kLanes<T>) add_columns<1>(block, running, column);
}

template <class T, class S>
TANDEM_INLINE void differentiate_as(const Block<T, S>& block, const ShareRows<T>& shares, T filter, T* along_classes,
                                    T* along_samples) {
  for (int64_t row = 0; row < block.rows; ++row) {
    Vector<T> along{};
    S* products = block.products + row * block.columns;
    for (int64_t column = 0; column < block.columns; column += kLanes<T>) {
      const auto score = load(products + column) * block.factors[row];
      const auto below = score - load(shares.log_sum + column);
      const auto gradient = load(shares.share + column) * exp_of_negative(below > T{0} ? Vector<T>{} : below) -
                            load(shares.floor + column);
      const auto kept = score > filter ? Vector<T>{} : gradient;
      const auto product = kept * score;
      along += product;
      store(load(along_samples + column) + product, along_samples + column);
      store(kept * block.factors[row], products + column);
    }
    along_classes[row] = sum_of<T>(along);
  }
}

template <class T>
TANDEM_INLINE void inverse_lengths_as(const T* values, int64_t rows, int64_t columns, T* out) {
  for (int64_t row = 0; row < rows; ++row, values += columns) {
    Vector<T> squares{};
    int64_t column = 0;
    for (; column + kLanes<T> <= columns; column += kLanes<T>) {
      const auto value = load(values + column);
      squares += value * value;
    }
    T sum = sum_of<T>(squares);
    for (; column < columns; ++column) sum += values[column] * values[column];
    out[row] = T{1} / std::max(std::sqrt(sum), T(1e-12));
  }
}

template <class T>
TANDEM_INLINE T widened(T value) {
  return value;
}
TANDEM_INLINE float widened(uint16_t value) {
  const uint32_t word = static_cast<uint32_t>(value) << 16;
  float number;
  std::memcpy(&number, &word, sizeof(number));
  return number;
}

template <class T, class S>
TANDEM_INLINE void add_along_as(const S* gradient, const T* weight, const T* along, int64_t rows, int64_t columns,
                                T* out) {
  for (int64_t row = 0; row < rows; ++row, gradient += columns, weight += columns, out += columns) {
    int64_t column = 0;
    for (; column + kLanes<T> <= columns; column += kLanes<T>) {
      store(load(gradient + column) + load(weight + column) * along[row], out + column);
    }
    for (; column < columns; ++column) out[column] = widened(gradient[column]) + weight[column] * along[row];
  }
}

using FloatBlock = Block<float, float>;
using DoubleBlock = Block<double, double>;
using HalfBlock = Block<float, uint16_t>;

TANDEM_FOR_EACH_CPU void add_floats(const FloatBlock& block, const RunningRows<float>& running) {
  add_block_as(block, running);
}
TANDEM_FOR_EACH_CPU void add_doubles(const DoubleBlock& block, const RunningRows<double>& running) {
  add_block_as(block, running);
}
TANDEM_FOR_EACH_CPU void add_halves(const HalfBlock& block, const RunningRows<float>& running) {
  add_block_as(block, running);
}
TANDEM_FOR_EACH_CPU void differentiate_floats(const FloatBlock& block, const ShareRows<float>& shares, float filter,
                                              float* classes, float* samples) {
  differentiate_as(block, shares, filter, classes, samples);
}
TANDEM_FOR_EACH_CPU void differentiate_doubles(const DoubleBlock& block, const ShareRows<double>& shares, double filter,
                                               double* classes, double* samples) {
  differentiate_as(block, shares, filter, classes, samples);
}
TANDEM_FOR_EACH_CPU void differentiate_halves(const HalfBlock& block, const ShareRows<float>& shares, float filter,
                                              float* classes, float* samples) {
  differentiate_as(block, shares, filter, classes, samples);
}
TANDEM_FOR_EACH_CPU void lengths_of_floats(const float* values, int64_t rows, int64_t columns, float* out) {
  inverse_lengths_as(values, rows, columns, out);
}
TANDEM_FOR_EACH_CPU void lengths_of_doubles(const double* values, int64_t rows, int64_t columns, double* out) {
  inverse_lengths_as(values, rows, columns, out);
}

TANDEM_FOR_EACH_CPU void add_along_floats(const float* gradient, const float* weight, const float* along, int64_t rows,
                                          int64_t columns, float* out) {
  add_along_as(gradient, weight, along, rows, columns, out);
}
TANDEM_FOR_EACH_CPU void add_along_doubles(const double* gradient, const double* weight, const double* along,
                                           int64_t rows, int64_t columns, double* out) {
  add_along_as(gradient, weight, along, rows, columns, out);
}
TANDEM_FOR_EACH_CPU void add_along_halves(const uint16_t* gradient, const float* weight, const float* along,
                                          int64_t rows, int64_t columns, float* out) {
  add_along_as(gradient, weight, along, rows, columns, out);
}

/// Rounds the last values of a row, fewer than fill a vector.
TANDEM_INLINE void round_rest(const float* values, int64_t count, uint16_t* rounded) {
  Vector<float> padded{};
  std::memcpy(&padded, values, count * sizeof(float));
  uint16_t halves[kLanes<float>];
  store(padded, halves);
  std::memcpy(rounded, halves, count * sizeof(uint16_t));
}

}  // namespace

TANDEM_FOR_EACH_CPU void add_rounded(const uint16_t* values, int64_t count, float* sum) {
  int64_t i = 0;
  for (; i + kLanes<float> <= count; i += kLanes<float>) store(load(sum + i) + load(values + i), sum + i);
  for (; i < count; ++i) sum[i] += widened(values[i]);
}

TANDEM_FOR_EACH_CPU void round_rows(const float* values, int64_t rows, int64_t columns, uint16_t* rounded,
                                    float* inverse_lengths) {
  for (int64_t row = 0; row < rows; ++row, values += columns, rounded += columns) {
    inverse_lengths_as(values, 1, columns, inverse_lengths + row);
    int64_t column = 0;  // the row is in the cache now
    for (; column + kLanes<float> <= columns; column += kLanes<float>) store(load(values + column), rounded + column);
    round_rest(values + column, columns - column, rounded + column);
  }
}

template <>
void add_block(const FloatBlock& block, const RunningRows<float>& running) {
  add_floats(block, running);
}
template <>
void add_block(const DoubleBlock& block, const RunningRows<double>& running) {
  add_doubles(block, running);
}
template <>
void add_block(const HalfBlock& block, const RunningRows<float>& running) {
  add_halves(block, running);
}
template <>
void differentiate_block(const FloatBlock& block, const ShareRows<float>& shares, float filter, float* along_classes,
                         float* along_samples) {
  differentiate_floats(block, shares, filter, along_classes, along_samples);
}
template <>
void differentiate_block(const DoubleBlock& block, const ShareRows<double>& shares, double filter,
                         double* along_classes, double* along_samples) {
  differentiate_doubles(block, shares, filter, along_classes, along_samples);
}
template <>
void differentiate_block(const HalfBlock& block, const ShareRows<float>& shares, float filter, float* along_classes,
                         float* along_samples) {
  differentiate_halves(block, shares, filter, along_classes, along_samples);
}
template <>
void add_along(const float* gradient, const float* weight, const float* along, int64_t rows, int64_t columns,
               float* out) {
  add_along_floats(gradient, weight, along, rows, columns, out);
}
template <>
void add_along(const double* gradient, const double* weight, const double* along, int64_t rows, int64_t columns,
               double* out) {
  add_along_doubles(gradient, weight, along, rows, columns, out);
}
template <>
void add_along(const uint16_t* gradient, const float* weight, const float* along, int64_t rows, int64_t columns,
               float* out) {
  add_along_halves(gradient, weight, along, rows, columns, out);
}
template <>
void inverse_lengths(const float* values, int64_t rows, int64_t columns, float* out) {
  lengths_of_floats(values, rows, columns, out);
}
template <>
void inverse_lengths(const double* values, int64_t rows, int64_t columns, double* out) {
  lengths_of_doubles(values, rows, columns, out);
}

}  // namespace tandem::kernels
