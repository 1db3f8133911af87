#pragma once
#include <concepts>
#include <cstdint>

#include "tandem/kernels/grid/body.h"

/// Who runs bodies: HostGrid (host_grid.h) on the CPU, CudaGrid (cuda_grid.cuh) on a GPU.
///
///   for_each(count, body)                                     body(i) for each i < count
///   reduce_rows(rows, columns, value, combine, initial, to)   to(row, value of all columns of the row, combined)
///   reduce_columns(rows, columns, value, combine, initial, to, scratch)
///                                                             to(column, value of all rows of the column, combined)
///
/// A reduction calls value(row, column) once for each pair, so that `value` may also write what belongs to the pair,
/// and to(...) once for each result, also without a single value. Neighbouring columns should be neighbours in memory;
/// a "column" may be a Pack of them. Values are combined in the same order on every grid and in every run.
///
/// Indices run at once and in any order: no two may write one byte. Calls on one grid follow each other.
namespace tandem::kernels {

template <class G>
concept Grid = requires(G& grid, void (*body)(int64_t), float (*value)(int64_t, int64_t), void (*to)(int64_t, float),
                        void* scratch) {
  grid.for_each(int64_t{}, body);
  grid.reduce_rows(int64_t{}, int64_t{}, value, Add{}, 0.0F, to);
  grid.reduce_columns(int64_t{}, int64_t{}, value, Add{}, 0.0F, to, scratch);
};

/// A row is the work of kRowLanes threads: lane l combines columns l, l + kRowLanes, and so on; then, for distance = 1,
/// 2, 4 ..., a lane combines its value with that of the lane this far above.
inline constexpr int kRowLanes = 32;

/// How columns are reduced: first each tile of columns in each chunk of rows, then the chunks' results in the same way.
///
///             ┌ width ┐                     lane l of a chunk combines its rows l, l + lanes, and so on;
///   chunk 0   │ tile 0│ tile 1 │ ...        then, for distance = lanes / 2 ... 4, 2, 1, a lane combines
///   chunk 1   │       │        │            its value with that of the lane this far above
struct ColumnPlan {
  static constexpr int kThreads = 256;
  static constexpr int64_t kRowsALane = 8, kTiles = 2048, kMostChunks = 1024;

  int width = 4, lanes = kThreads / 4;
  int64_t tiles = 0, chunks = 1, rows_a_chunk = 0;

  ColumnPlan(int64_t rows, int64_t columns) {
    while (width < columns && width < 32) width *= 2;
    lanes = kThreads / width;
    tiles = packs_of(columns, width);
    const int64_t wanted = tiles > 0 ? (kTiles + tiles - 1) / tiles : 1, able = rows / (lanes * kRowsALane);
    chunks = larger<int64_t>(1, smaller(smaller(wanted, able), kMostChunks));
    rows_a_chunk = (rows + chunks - 1) / chunks;
  }
};

/// Bytes of scratch for reduce_columns() to a value of type T. Enough for fewer rows, but not for fewer columns.
template <class T>
int64_t column_scratch(int64_t rows, int64_t columns) {
  const ColumnPlan plan(rows, columns);
  return plan.chunks > 1 ? plan.chunks * columns * static_cast<int64_t>(sizeof(T)) : 0;
}

/// The results of chunks: written as results, and read as values.
template <class T>
struct ChunkResults {
  T* results;
  int64_t columns;

  TANDEM_BODY void operator()(int64_t index, const T& result) const { results[index] = result; }
  TANDEM_BODY T operator()(int64_t chunk, int64_t column) const { return results[chunk * columns + column]; }
};

}  // namespace tandem::kernels
