#include "tandem/kernels/abn_kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tandem/kernels/detail/swish_table.h"

#define TANDEM_LOOPS "tandem/kernels/detail/abn_loops.inc"
#include "tandem/base/for_each_cpu.inc"

namespace tandem::kernels {

void abn_moments(const float* x, int64_t rows, int64_t channels, double* sum, double* square) {
  TANDEM_FOR_CPU(abn_moments(x, rows, channels, sum, square))
}

void abn_forward(const AbnForward<float>& how, int64_t rows, int64_t channels, float* x, uint8_t* sides) {
  TANDEM_FOR_CPU(abn_forward(how, rows, channels, x, sides))
}

void abn_gradient_sums(const AbnBackward<float>& in, bool wide, int64_t rows, int64_t channels, double* sum,
                       double* product) {
  TANDEM_FOR_CPU(abn_gradient_sums(in, wide, rows, channels, sum, product))
}

void abn_unfold_swish(const AbnBackward<float>& in, bool wide, int64_t rows, int64_t channels, double* sum,
                      double* product, const AbnUnfolded<float>& to) {
  TANDEM_FOR_CPU(abn_unfold_swish(in, wide, rows, channels, sum, product, to))
}

void abn_gradient_apply(const AbnBackward<float>& in, const AbnApply<float>& how, int64_t rows, int64_t channels,
                        float* out) {
  TANDEM_FOR_CPU(abn_gradient_apply(in, how, rows, channels, out))
}

void invert_swish(const float* z, const uint8_t* sides, int64_t rows, int64_t channels, float* y) {
  TANDEM_FOR_CPU(invert_swish(z, sides, rows, channels, y))
}

void abn_moments(const double* x, int64_t rows, int64_t channels, double* sum, double* square) {
  TANDEM_FOR_CPU(abn_moments(x, rows, channels, sum, square))
}

void abn_forward(const AbnForward<double>& how, int64_t rows, int64_t channels, double* x, uint8_t* sides) {
  TANDEM_FOR_CPU(abn_forward(how, rows, channels, x, sides))
}

void abn_gradient_sums(const AbnBackward<double>& in, bool wide, int64_t rows, int64_t channels, double* sum,
                       double* product) {
  TANDEM_FOR_CPU(abn_gradient_sums(in, wide, rows, channels, sum, product))
}

void abn_unfold_swish(const AbnBackward<double>& in, bool wide, int64_t rows, int64_t channels, double* sum,
                      double* product, const AbnUnfolded<double>& to) {
  TANDEM_FOR_CPU(abn_unfold_swish(in, wide, rows, channels, sum, product, to))
}

void abn_gradient_apply(const AbnBackward<double>& in, const AbnApply<double>& how, int64_t rows, int64_t channels,
                        double* out) {
  TANDEM_FOR_CPU(abn_gradient_apply(in, how, rows, channels, out))
}

void invert_swish(const double* z, const uint8_t* sides, int64_t rows, int64_t channels, double* y) {
  TANDEM_FOR_CPU(invert_swish(z, sides, rows, channels, y))
}

}  // namespace tandem::kernels
