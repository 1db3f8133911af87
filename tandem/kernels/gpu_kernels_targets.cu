#include "tandem/kernels/gpu_kernels.h"

#include "tandem/kernels/detail/gpu_instances.h"
#include "tandem/kernels/grid/cuda_grid.cuh"

namespace tandem::kernels::gpu {

TANDEM_GPU_ALL_TARGETS

}  // namespace tandem::kernels::gpu
