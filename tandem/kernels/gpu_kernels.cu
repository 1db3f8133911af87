#include "tandem/kernels/gpu_kernels.h"

#include "tandem/kernels/detail/gpu_instances.h"
#include "tandem/kernels/grid/block_code_grid.h"
#include "tandem/kernels/grid/cuda_grid.cuh"

namespace tandem::kernels::gpu {

bool are_built() { return true; }

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

int encode(const float* x, int64_t count, int8_t* codes, float* scales, void* stream) {
  CudaGrid grid(stream);
  encode_on(grid, x, count, codes, scales);
  return grid.error();
}

int decode(const int8_t* codes, const float* scales, int64_t count, float* x, void* stream) {
  CudaGrid grid(stream);
  decode_on(grid, codes, scales, count, x);
  return grid.error();
}

}  // namespace tandem::kernels::gpu
