#include "tandem/kernels/abn_kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tandem/kernels/detail/swish_table.h"

#define TANDEM_LOOPS "tandem/kernels/detail/abn_loops.inc"
#include "tandem/base/for_each_cpu.inc"

namespace tandem::kernels {

void abn_moments(const uint16_t* x, int64_t rows, int64_t channels, double* sum, double* square) {
  TANDEM_FOR_CPU(abn_moments(x, rows, channels, sum, square))
}

void abn_forward(const AbnForward<float>& how, int64_t rows, int64_t channels, uint16_t* x, uint8_t* sides) {
  TANDEM_FOR_CPU(abn_forward(how, rows, channels, x, sides))
}

void abn_gradient_sums(const AbnBackward<uint16_t>& in, bool wide, int64_t rows, int64_t channels, double* sum,
                       double* product) {
  TANDEM_FOR_CPU(abn_gradient_sums(in, wide, rows, channels, sum, product))
}

void abn_gradient_apply(const AbnBackward<uint16_t>& in, const AbnApply<float>& how, int64_t rows, int64_t channels,
                        uint16_t* out) {
  TANDEM_FOR_CPU(abn_gradient_apply(in, how, rows, channels, out))
}

}  // namespace tandem::kernels
