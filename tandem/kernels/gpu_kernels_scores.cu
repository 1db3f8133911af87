#include "tandem/kernels/gpu_kernels.h"

#include "tandem/kernels/detail/gpu_instances.h"
#include "tandem/kernels/grid/cuda_grid.cuh"
#include "tandem/kernels/grid/score_grid.h"

namespace tandem::kernels::gpu {

template <class T>
int64_t score_scratch(int64_t rows, int64_t columns) {
  return kernels::score_scratch<T>(rows, columns);
}

template <class T, class S>
int add_block(const Block<T, S>& block, const RunningRows<T>& running, void* scratch, void* stream) {
  CudaGrid grid(stream);
  add_block_on(grid, block, running, scratch);
  return grid.error();
}

template <class T, class S>
int differentiate_block(const Block<T, S>& block, const ShareRows<T>& shares, T filter, T* along_classes,
                        T* along_samples, void* scratch, void* stream) {
  CudaGrid grid(stream);
  differentiate_block_on(grid, block, shares, filter, along_classes, along_samples, scratch);
  return grid.error();
}

template <class T, class S>
int exponentiate_block(const Block<T, S>& block, int32_t* exponents, const ExponentRows<T>& running, void* scratch,
                       void* stream) {
  CudaGrid grid(stream);
  exponentiate_block_on(grid, block, exponents, running, scratch);
  return grid.error();
}

template <class T, class S>
int project_along(const S* gradient, const T* weight, const T* factors, int64_t rows, int64_t columns, T* along,
                  void* stream) {
  CudaGrid grid(stream);
  project_along_on(grid, gradient, weight, factors, rows, columns, along);
  return grid.error();
}

template <class T, class S>
int add_along(const S* gradient, const T* weight, const T* along, int64_t rows, int64_t columns, T* out, void* stream) {
  CudaGrid grid(stream);
  add_along_on(grid, gradient, weight, along, rows, columns, out);
  return grid.error();
}

int add_rounded(const uint16_t* values, int64_t count, float* sum, void* stream) {
  CudaGrid grid(stream);
  add_rounded_on(grid, values, count, sum);
  return grid.error();
}

template <class T>
int inverse_lengths(const T* values, int64_t rows, int64_t columns, T* out, void* stream) {
  CudaGrid grid(stream);
  inverse_lengths_on(grid, values, rows, columns, nullptr, out);
  return grid.error();
}

int round_rows(const float* values, int64_t rows, int64_t columns, uint16_t* rounded, float* inverse_lengths,
               void* stream) {
  CudaGrid grid(stream);
  inverse_lengths_on(grid, values, rows, columns, rounded, inverse_lengths);
  return grid.error();
}

TANDEM_GPU_ALL_SCORES

}  // namespace tandem::kernels::gpu
