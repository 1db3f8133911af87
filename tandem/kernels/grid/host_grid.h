#pragma once
#include <array>
#include <cstdint>
#include <thread>
#include <vector>

#include "tandem/kernels/grid/grid.h"

namespace tandem::kernels {

/// Runs bodies on the CPU, with the order of combination that a GPU has. Several threads take turns at the indices, as
/// neighbours on a GPU do, so that ThreadSanitizer sees two of them that write one byte.
class HostGrid {
 public:
  explicit HostGrid(int threads = 1) : threads_(threads) {}

  template <class Body>
  void for_each(int64_t count, const Body& body) {
    std::vector<std::thread> others;
    for (int t = 1; t < threads_; ++t) {
      others.emplace_back([=, this] {
        for (int64_t i = t; i < count; i += threads_) body(i);
      });
    }
    for (int64_t i = 0; i < count; i += threads_) body(i);
    for (auto& other : others) other.join();
  }

  template <class Value, class Combine, class T, class To>
  void reduce_rows(int64_t rows, int64_t columns, const Value& value, const Combine& combine, const T& initial,
                   const To& to) {
    for_each(rows, [=](int64_t row) {
      std::array<T, kRowLanes> lanes;
      lanes.fill(initial);
      for (int64_t c = 0; c < columns; ++c) lanes[c % kRowLanes] = combine(lanes[c % kRowLanes], value(row, c));
      for (int distance = 1; distance < kRowLanes; distance *= 2) {
        for (int l = 0; l + distance < kRowLanes; ++l) lanes[l] = combine(lanes[l], lanes[l + distance]);
      }
      to(row, lanes[0]);
    });
  }

  template <class Value, class Combine, class T, class To>
  void reduce_columns(int64_t rows, int64_t columns, const Value& value, const Combine& combine, const T& initial,
                      const To& to, void* scratch) {
    const ColumnPlan plan(rows, columns);
    if (plan.chunks == 1) return reduce_chunks(rows, columns, plan, value, combine, initial, to);
    const ChunkResults<T> results{static_cast<T*>(scratch), columns};
    reduce_chunks(rows, columns, plan, value, combine, initial, results);
    ColumnPlan last = plan;
    last.chunks = 1;
    last.rows_a_chunk = plan.chunks;
    reduce_chunks(plan.chunks, columns, last, results, combine, initial, to);
  }

 private:
  template <class Value, class Combine, class T, class To>
  void reduce_chunks(int64_t rows, int64_t columns, const ColumnPlan& plan, const Value& value, const Combine& combine,
                     const T& initial, const To& to) {
    for_each(plan.chunks * columns, [=](int64_t i) {
      const int64_t first = i / columns * plan.rows_a_chunk, end = smaller(first + plan.rows_a_chunk, rows);
      std::array<T, ColumnPlan::kThreads> lanes;
      lanes.fill(initial);
      for (int64_t r = first; r < end; ++r) {
        T& lane = lanes[(r - first) % plan.lanes];
        lane = combine(lane, value(r, i % columns));
      }
      for (int distance = plan.lanes / 2; distance > 0; distance /= 2) {
        for (int l = 0; l < distance; ++l) lanes[l] = combine(lanes[l], lanes[l + distance]);
      }
      to(i, lanes[0]);
    });
  }

  int threads_;
};

static_assert(Grid<HostGrid>);

}  // namespace tandem::kernels
