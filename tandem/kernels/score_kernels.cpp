#include "tandem/kernels/score_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace tandem::kernels {
namespace {
using FloatBlock = Block<float, float>;
using DoubleBlock = Block<double, double>;
using HalfBlock = Block<float, uint16_t>;
}  // namespace

}  // namespace tandem::kernels

#define TANDEM_LOOPS "tandem/kernels/detail/score_loops.inc"
#include "tandem/base/for_each_cpu.inc"

namespace tandem::kernels {

void add_rounded(const uint16_t* values, int64_t count, float* sum) { TANDEM_FOR_CPU(add_rounded(values, count, sum)) }

void round_rows(const float* values, int64_t rows, int64_t columns, uint16_t* rounded, float* inverse_lengths) {
  TANDEM_FOR_CPU(round_rows(values, rows, columns, rounded, inverse_lengths))
}

template <>
void add_block(const FloatBlock& block, const RunningRows<float>& running) {
  TANDEM_FOR_CPU(add_floats(block, running))
}
template <>
void add_block(const DoubleBlock& block, const RunningRows<double>& running) {
  TANDEM_FOR_CPU(add_doubles(block, running))
}
template <>
void add_block(const HalfBlock& block, const RunningRows<float>& running) {
  TANDEM_FOR_CPU(add_halves(block, running))
}
template <>
void differentiate_block(const FloatBlock& block, const ShareRows<float>& shares, float filter, float* along_classes,
                         float* along_samples) {
  TANDEM_FOR_CPU(differentiate_floats(block, shares, filter, along_classes, along_samples))
}
template <>
void differentiate_block(const DoubleBlock& block, const ShareRows<double>& shares, double filter,
                         double* along_classes, double* along_samples) {
  TANDEM_FOR_CPU(differentiate_doubles(block, shares, filter, along_classes, along_samples))
}
template <>
void differentiate_block(const HalfBlock& block, const ShareRows<float>& shares, float filter, float* along_classes,
                         float* along_samples) {
  TANDEM_FOR_CPU(differentiate_halves(block, shares, filter, along_classes, along_samples))
}
template <>
void add_along(const float* gradient, const float* weight, const float* along, int64_t rows, int64_t columns,
               float* out) {
  TANDEM_FOR_CPU(add_along_floats(gradient, weight, along, rows, columns, out))
}
template <>
void add_along(const double* gradient, const double* weight, const double* along, int64_t rows, int64_t columns,
               double* out) {
  TANDEM_FOR_CPU(add_along_doubles(gradient, weight, along, rows, columns, out))
}
template <>
void add_along(const uint16_t* gradient, const float* weight, const float* along, int64_t rows, int64_t columns,
               float* out) {
  TANDEM_FOR_CPU(add_along_halves(gradient, weight, along, rows, columns, out))
}
template <>
void inverse_lengths(const float* values, int64_t rows, int64_t columns, float* out) {
  TANDEM_FOR_CPU(lengths_of_floats(values, rows, columns, out))
}
template <>
void inverse_lengths(const double* values, int64_t rows, int64_t columns, double* out) {
  TANDEM_FOR_CPU(lengths_of_doubles(values, rows, columns, out))
}

}  // namespace tandem::kernels
