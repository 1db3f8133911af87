#include "tandem/kernels/activation_kernels.h"

#include <cstring>

#define TANDEM_LOOPS "tandem/kernels/detail/activation_loops.inc"
#include "tandem/base/for_each_cpu.inc"

namespace tandem::kernels {

void activate(Curve curve, const float* x, int64_t count, float* y) { TANDEM_FOR_CPU(activate(curve, x, count, y)) }

void activate(Curve curve, const double* x, int64_t count, double* y) { TANDEM_FOR_CPU(activate(curve, x, count, y)) }

void activate(Curve curve, const uint16_t* x, int64_t count, uint16_t* y) {
  TANDEM_FOR_CPU(activate(curve, x, count, y))
}

void differentiate(Curve curve, const float* x, const float* gradient, int64_t count, float* out) {
  TANDEM_FOR_CPU(differentiate(curve, x, gradient, count, out))
}

void differentiate(Curve curve, const double* x, const double* gradient, int64_t count, double* out) {
  TANDEM_FOR_CPU(differentiate(curve, x, gradient, count, out))
}

void differentiate(Curve curve, const uint16_t* x, const uint16_t* gradient, int64_t count, uint16_t* out) {
  TANDEM_FOR_CPU(differentiate(curve, x, gradient, count, out))
}

}  // namespace tandem::kernels
