#pragma once
#include <optional>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/parallel/box.h"

namespace tandem::parallel {

/// Indices first .. first + count - 1, of `total`, along one dim of a tensor that is split over ranks.
struct Split {
  int64_t dim = 0, first = 0, count = 0, total = 0;

  bool operator==(const Split&) const = default;
};

/// Which part of a tensor this rank holds, and whether its copy is the one that counts.
///
///   [11, 6], dim 1 split over 2 ranks, replicated over 2           columns 0..2      columns 3..5
///                                                      replica 0   rank 0: counts    rank 1: counts
///                                                      replica 1   rank 2            rank 3
///
/// Norms count each part once, checkpoints store it once. Mesh::place() computes placements; the default is a tensor
/// that every rank of the job holds whole. A rank that holds several parts of a tensor has a placement for each.
struct Placement {
  std::vector<Split> splits;  // in ascending order of the dim, one a dim; empty: all of the tensor
  int replica = 0;            // this rank's number among the ranks that hold this part of a split tensor
  std::optional<int> holder;  // its number among the ranks that hold any part; nullopt: all ranks of the job do

  /// Every rank of the job holds all of it.
  bool is_everywhere() const { return splits.empty() && !holder; }

  /// Whether this rank's copy counts. `rank`: this rank in the group of all ranks of the job.
  bool counts_on(int rank) const { return splits.empty() ? holder.value_or(rank) == 0 : replica == 0; }

  /// The placement of a tensor that each of these ranks holds whole, such as a step count beside a weight.
  Placement of_whole() const { return {.splits = {}, .replica = 0, .holder = holder}; }

  /// The sizes of the whole tensor, and the elements that this rank holds; `sizes`: those of this rank's part.
  std::vector<int64_t> whole_sizes(at::IntArrayRef sizes) const;
  Box box(at::IntArrayRef sizes) const;

  bool operator==(const Placement&) const = default;
};

/// Throws c10::ValueError, which begins with `what`, if a tensor of `sizes` cannot be a part with this placement: a dim
/// that the tensor lacks or that comes twice, another size along a dim, a range outside 0..total-1.
void check_placement(const std::string& what, const Placement& placement, at::IntArrayRef sizes);

}  // namespace tandem::parallel
