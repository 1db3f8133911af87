#pragma once
#include <functional>
#include <span>

#include "tandem/evaluation/detail/rows.h"

namespace tandem::evaluation::detail {

/// Rows of a query block over all ranks. Each rank gives kQueryRows / ranks of them, rounded down, at least 1.
constexpr int64_t kQueryRows = 256;

/// The similarities of one query with a block of the gallery, computed by a matrix product.
///   value[j]  similarity with gallery row first + j, up to rounding
///   slack[j]  bound on the difference to similarity(); infinite if the product overflowed
struct BlockRow {
  int64_t query, first;
  std::span<const double> value, slack;
};

/// Bounds on the difference between similarity() and a product in the type of the features. relative_slack() is
/// relative to the lengths; smallest_slack(), for subnormal numbers flushed to 0, is relative to the factors.
double relative_slack(const Rows& rows);
double smallest_slack(const Rows& rows);

/// Visits every query with every row of the gallery, in blocks of about `block_bytes` of products. Several threads call
/// `visit` at a time, but never for the same query. Not collective. Memory: block_bytes, 16 bytes a column and thread.
void for_each_row(const Rows& queries, const Rows& gallery, int64_t block_bytes,
                  const std::function<void(const BlockRow&)>& visit);

/// Visits the queries of all ranks block by block, with the same block on all ranks: rows from `begin` on of each
/// rank's part, rank by rank. `sizes`: the number of rows on each rank. Collective; `visit(block, begin)` may be
/// collective too. Memory: a block's rows.
void for_each_query_block(const Rows& own, const std::vector<int64_t>& sizes, comm::ProcessGroup& group,
                          const std::function<void(const Rows&, int64_t begin)>& visit);

}  // namespace tandem::evaluation::detail
