#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cub/warp/warp_reduce.cuh>

#include "tandem/kernels/grid/grid.h"

namespace tandem::kernels {

inline constexpr int kThreads = ColumnPlan::kThreads;

template <class Body>
__global__ void __launch_bounds__(kThreads) run_each(int64_t count, Body body) {
  const int64_t all = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += all) body(i);
}

template <class Value, class Combine, class T, class To>
__global__ void __launch_bounds__(kThreads)
    reduce_each_row(int64_t rows, int64_t columns, Value value, Combine combine, T initial, To to) {
  using Reduce = cub::WarpReduce<T, kRowLanes>;
  __shared__ typename Reduce::TempStorage storage[kThreads / kRowLanes];
  const int lane = threadIdx.x % kRowLanes, group = threadIdx.x / kRowLanes;
  const int64_t all = int64_t{gridDim.x} * (kThreads / kRowLanes);
  for (int64_t row = int64_t{blockIdx.x} * (kThreads / kRowLanes) + group; row < rows; row += all) {
    T own = initial;
    for (int64_t c = lane; c < columns; c += kRowLanes) own = combine(own, value(row, c));
    own = Reduce(storage[group]).Reduce(own, combine);
    if (lane == 0) to(row, own);
    __syncwarp();
  }
}

/// A tile of columns (x) in a chunk of rows (y): see ColumnPlan.
template <class Value, class Combine, class T, class To>
__global__ void __launch_bounds__(kThreads)
    reduce_tile(int64_t rows, int64_t columns, int64_t rows_a_chunk, Value value, Combine combine, T initial, To to) {
  __shared__ T parts[kThreads];
  const int width = blockDim.x, lanes = blockDim.y, at = threadIdx.y * width + threadIdx.x;
  const int64_t column = int64_t{blockIdx.x} * width + threadIdx.x;
  const int64_t first = int64_t{blockIdx.y} * rows_a_chunk, end = smaller(first + rows_a_chunk, rows);
  T own = initial;
  if (column < columns) {
    for (int64_t r = first + threadIdx.y; r < end; r += lanes) own = combine(own, value(r, column));
  }
  parts[at] = own;
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    __syncthreads();
    if (threadIdx.y < distance) parts[at] = own = combine(own, parts[at + distance * width]);
  }
  if (threadIdx.y == 0 && column < columns) to(int64_t{blockIdx.y} * columns + column, own);
}

/// Runs bodies on a stream of the current device: a launch or two for each call, without waiting.
class CudaGrid {
 public:
  explicit CudaGrid(void* stream) : stream_(static_cast<cudaStream_t>(stream)) {}

  template <class Body>
  void for_each(int64_t count, const Body& body) {
    if (count == 0) return;
    run_each<<<blocks_for(packs_of(count, kThreads)), kThreads, 0, stream_>>>(count, body);
    note();
  }

  template <class Value, class Combine, class T, class To>
  void reduce_rows(int64_t rows, int64_t columns, const Value& value, const Combine& combine, const T& initial,
                   const To& to) {
    if (rows == 0) return;
    const auto blocks = blocks_for(packs_of(rows, kThreads / kRowLanes));
    reduce_each_row<<<blocks, kThreads, 0, stream_>>>(rows, columns, value, combine, initial, to);
    note();
  }

  template <class Value, class Combine, class T, class To>
  void reduce_columns(int64_t rows, int64_t columns, const Value& value, const Combine& combine, const T& initial,
                      const To& to, void* scratch) {
    if (columns == 0) return;
    const ColumnPlan plan(rows, columns);
    const dim3 threads(plan.width, plan.lanes), tiles(static_cast<unsigned>(plan.tiles), 1),
        chunks(tiles.x, static_cast<unsigned>(plan.chunks));
    if (plan.chunks == 1) {
      reduce_tile<<<tiles, threads, 0, stream_>>>(rows, columns, rows, value, combine, initial, to);
      return note();
    }
    const ChunkResults<T> results{static_cast<T*>(scratch), columns};
    reduce_tile<<<chunks, threads, 0, stream_>>>(rows, columns, plan.rows_a_chunk, value, combine, initial, results);
    note();
    reduce_tile<<<tiles, threads, 0, stream_>>>(plan.chunks, columns, plan.chunks, results, combine, initial, to);
    note();
  }

  /// The first error of a launch, or 0.
  int error() const { return error_; }

 private:
  static unsigned blocks_for(int64_t wanted) { return static_cast<unsigned>(smaller<int64_t>(wanted, 1 << 20)); }

  void note() {
    const auto error = cudaGetLastError();
    if (error_ == cudaSuccess) error_ = error;
  }

  cudaStream_t stream_;
  cudaError_t error_ = cudaSuccess;
};

static_assert(Grid<CudaGrid>);

namespace gpu {

template <class Body>
int for_each(const Body& body, int64_t count, void* stream) {
  CudaGrid grid(stream);
  grid.for_each(count, body);
  return grid.error();
}

}  // namespace gpu

}  // namespace tandem::kernels
