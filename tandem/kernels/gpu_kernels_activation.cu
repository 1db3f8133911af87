#include "tandem/kernels/gpu_kernels.h"

#include "tandem/kernels/detail/gpu_instances.h"
#include "tandem/kernels/grid/activation_grid.h"
#include "tandem/kernels/grid/cuda_grid.cuh"

namespace tandem::kernels::gpu {

template <class S>
int activate(Curve curve, const S* x, int64_t count, S* y, void* stream) {
  CudaGrid grid(stream);
  activate_on(grid, curve, x, count, y);
  return grid.error();
}

template <class S>
int differentiate(Curve curve, const S* x, const S* gradient, int64_t count, S* out, void* stream) {
  CudaGrid grid(stream);
  differentiate_on(grid, curve, x, gradient, count, out);
  return grid.error();
}

TANDEM_GPU_ALL_ACTIVATIONS

}  // namespace tandem::kernels::gpu
