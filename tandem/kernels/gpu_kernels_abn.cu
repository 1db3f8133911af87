#include "tandem/kernels/gpu_kernels.h"

#include "tandem/kernels/detail/gpu_instances.h"
#include "tandem/kernels/grid/abn_grid.h"
#include "tandem/kernels/grid/cuda_grid.cuh"

namespace tandem::kernels::gpu {

template <class S>
int abn_forward(const AbnForward<AbnNumber<S>>& how, int64_t rows, int64_t channels, S* x, uint8_t* sides,
                void* stream) {
  CudaGrid grid(stream);
  abn_forward_on(grid, how, rows, channels, x, sides);
  return grid.error();
}

int64_t abn_scratch(int64_t rows, int64_t channels) { return kernels::abn_scratch(rows, channels); }

template <class S>
int abn_gradient_sums(const AbnBackward<S>& in, int64_t rows, int64_t channels, const AbnUnfolded<S>& to, double* sum,
                      double* product, void* scratch, void* stream) {
  CudaGrid grid(stream);
  abn_gradient_sums_on(grid, in, rows, channels, to, sum, product, scratch);
  return grid.error();
}

template <class S>
int abn_gradient_apply(const AbnBackward<S>& in, const AbnApply<AbnNumber<S>>& how, int64_t rows, int64_t channels,
                       S* out, void* stream) {
  CudaGrid grid(stream);
  abn_gradient_apply_on(grid, in, how, rows, channels, out);
  return grid.error();
}

TANDEM_GPU_ALL_ABNS

}  // namespace tandem::kernels::gpu
