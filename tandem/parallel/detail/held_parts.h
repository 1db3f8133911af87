#pragma once
#include <vector>

#include "tandem/parallel/detail/flat_layout.h"
#include "tandem/parallel/parameter.h"

namespace tandem::parallel::detail {

/// Which shard a rank holds, and how many hold the same one.
struct ShardHolder {
  int shard = 0;                // of the layout; -1: none
  int replica = 0, copies = 1;  // this rank among the ranks that hold the same shard
  int world = 1;                // all ranks of the job
};

/// What this rank holds of `parameter`, tensor `i` of a layout: leaves, views of its shard, with their placements.
std::vector<Parameter> held_parts(const FlatLayout& layout, size_t i, const Parameter& parameter, const Tensor& shard,
                                  const ShardHolder& holder);

}  // namespace tandem::parallel::detail
