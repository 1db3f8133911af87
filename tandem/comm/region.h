#pragma once
#include "tandem/comm/collectives.h"

namespace tandem::comm {

// Megatron's four pairs. They bound a region in which a layer is split over the group and differ from the operators in
// collectives.h: the loss behind the region is the same on all ranks and counts ONCE, not once a rank. Take these
// around a tensor-parallel layer, and never both conventions on one path: the gradient would be wrong by a factor of
// size(). dim: the last by default; parts as split_sizes. Collective, forward or backward as said.

/// f: forward nothing, backward all_reduce. Into the region: every rank uses the same x.
Tensor copy_to_region(const Tensor& x, ProcessGroup& group, flight::Where where = flight::Where::current());

/// g: forward all_reduce, backward nothing. Out of the region: the ranks hold parts of a sum.
Tensor reduce_from_region(const Tensor& x, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Forward this rank's part along `dim`, backward all_gather.
Tensor scatter_to_region(const Tensor& x, ProcessGroup& group, int64_t dim = -1,
                         flight::Where where = flight::Where::current());

/// Forward all_gather along `dim`, backward this rank's part.
Tensor gather_from_region(const Tensor& x, ProcessGroup& group, int64_t dim = -1,
                          flight::Where where = flight::Where::current());

}  // namespace tandem::comm
