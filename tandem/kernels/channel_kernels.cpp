#include "tandem/kernels/channel_kernels.h"

#include <cstring>

#define TANDEM_LOOPS "tandem/kernels/detail/channel_loops.inc"
#include "tandem/base/for_each_cpu.inc"

namespace tandem::kernels {

void moments(const float* x, int64_t rows, int64_t channels, float* sum, float* square) {
  TANDEM_FOR_CPU(moments(x, rows, channels, sum, square))
}

void moments(const uint16_t* x, int64_t rows, int64_t channels, float* sum, float* square) {
  TANDEM_FOR_CPU(moments(x, rows, channels, sum, square))
}

void scale_shift(const float* x, const float* residual, const float* scale, const float* offset, bool relu,
                 int64_t rows, int64_t channels, float* y) {
  TANDEM_FOR_CPU(scale_shift(x, residual, scale, offset, relu, rows, channels, y))
}

void scale_shift(const uint16_t* x, const uint16_t* residual, const float* scale, const float* offset, bool relu,
                 int64_t rows, int64_t channels, uint16_t* y) {
  TANDEM_FOR_CPU(scale_shift(x, residual, scale, offset, relu, rows, channels, y))
}

void gradient_moments(const Backward<float>& in, int64_t rows, int64_t channels, float* sum, float* product,
                      float* masked) {
  TANDEM_FOR_CPU(gradient_moments(in, rows, channels, sum, product, masked))
}

void gradient_moments(const Backward<uint16_t>& in, int64_t rows, int64_t channels, float* sum, float* product,
                      uint16_t* masked) {
  TANDEM_FOR_CPU(gradient_moments(in, rows, channels, sum, product, masked))
}

void gradient_apply(const Backward<float>& in, const float* slope, const float* shift, int64_t rows, int64_t channels,
                    float* grad_x) {
  TANDEM_FOR_CPU(gradient_apply(in, slope, shift, rows, channels, grad_x))
}

void gradient_apply(const Backward<uint16_t>& in, const float* slope, const float* shift, int64_t rows,
                    int64_t channels, uint16_t* grad_x) {
  TANDEM_FOR_CPU(gradient_apply(in, slope, shift, rows, channels, grad_x))
}

}  // namespace tandem::kernels
