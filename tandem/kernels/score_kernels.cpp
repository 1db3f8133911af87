#include "tandem/kernels/score_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#define TANDEM_LOOPS "tandem/kernels/detail/score_loops.inc"
#include "tandem/base/for_each_cpu.inc"

namespace tandem::kernels {

void add_rounded(const uint16_t* values, int64_t count, float* sum) { TANDEM_FOR_CPU(add_rounded(values, count, sum)) }

void round_rows(const float* values, int64_t rows, int64_t columns, uint16_t* rounded, float* inverse_lengths) {
  TANDEM_FOR_CPU(round_rows(values, rows, columns, rounded, inverse_lengths))
}

template <class T, class S>
void add_block(const Block<T, S>& block, const RunningRows<T>& running) {
  TANDEM_FOR_CPU(add_block(block, running))
}
template void add_block(const Block<float, float>&, const RunningRows<float>&);
template void add_block(const Block<double, double>&, const RunningRows<double>&);
template void add_block(const Block<float, uint16_t>&, const RunningRows<float>&);

template <class T, class S>
void differentiate_block(const Block<T, S>& block, const ShareRows<T>& shares, T filter, T* along_classes,
                         T* along_samples) {
  TANDEM_FOR_CPU(differentiate_block(block, shares, filter, along_classes, along_samples))
}
template void differentiate_block(const Block<float, float>&, const ShareRows<float>&, float, float*, float*);
template void differentiate_block(const Block<double, double>&, const ShareRows<double>&, double, double*, double*);
template void differentiate_block(const Block<float, uint16_t>&, const ShareRows<float>&, float, float*, float*);

template <class T, class S>
void add_along(const S* gradient, const T* weight, const T* along, int64_t rows, int64_t columns, T* out) {
  TANDEM_FOR_CPU(add_along(gradient, weight, along, rows, columns, out))
}
template void add_along(const float*, const float*, const float*, int64_t, int64_t, float*);
template void add_along(const double*, const double*, const double*, int64_t, int64_t, double*);
template void add_along(const uint16_t*, const float*, const float*, int64_t, int64_t, float*);

template <class T>
void inverse_lengths(const T* values, int64_t rows, int64_t columns, T* out) {
  TANDEM_FOR_CPU(inverse_lengths(values, rows, columns, out))
}
template void inverse_lengths(const float*, int64_t, int64_t, float*);
template void inverse_lengths(const double*, int64_t, int64_t, double*);

}  // namespace tandem::kernels
