#pragma once
#include <functional>
#include <span>

#include "tandem/evaluation/detail/rows.h"

namespace tandem::evaluation::detail {

/// Rows of a query block over all ranks, as near as they divide.
constexpr int64_t kQueryRows = 256;

/// One query beside a block of the gallery, worked out by a matrix product.
///   value[j]  its similarity with gallery row first + j, or what rounding made of it
///   slack[j]  how far from similarity() that may be; infinite when the product overflowed
struct BlockRow {
  int64_t query, first;
  std::span<const double> value, slack;
};

/// How far a product of features of this type may be from similarity(): relative to the lengths, and for lost
/// subnormal numbers relative to the factors.
double relative_slack(const Rows& rows);
double smallest_slack(const Rows& rows);

/// Every query with every row of the gallery, in blocks of about `block_bytes` of products. Rows of one block are
/// visited by several threads at a time, no query by two. Local. Memory: block_bytes, 16 bytes a column and thread.
void for_each_row(const Rows& queries, const Rows& gallery, int64_t block_bytes,
                  const std::function<void(const BlockRow&)>& visit);

/// All ranks' queries block by block, the same block on all ranks: rows begin..end of each rank's part, rank by rank.
/// `sizes`: how many each rank holds. Collective, and so may `visit(block, begin)` be. Memory: a block's rows.
void for_each_query_block(const Rows& own, const std::vector<int64_t>& sizes, comm::ProcessGroup& group,
                          const std::function<void(const Rows&, int64_t begin)>& visit);

}  // namespace tandem::evaluation::detail
