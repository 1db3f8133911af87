#pragma once
#include "tandem/comm/collectives.h"

namespace tandem::comm {

// Megatron's four operators at the boundaries of a region in which a layer is split over the group. They differ from
// the operators in collectives.h: the loss behind the region is the same on all ranks and counts ONCE, not once per
// rank. Use them around a tensor-parallel layer, and do not mix both conventions on one path: the gradient would be
// wrong by a factor of size(). `dim` defaults to the last dim; `sizes`: of each rank's part of it, by default
// split_sizes(). Each operator communicates, and is collective, in the direction that its comment names; in a group of
// one rank it returns its input. The gradient of each is one of them, so that second derivatives work.

/// f: identity in forward, all_reduce in backward. Enters the region: every rank uses the same x.
Tensor copy_to_region(const Tensor& x, ProcessGroup& group, flight::Where where = flight::Where::current());

/// g: all_reduce in forward, identity in backward. Leaves the region: x is one term of a sum over the ranks.
Tensor reduce_from_region(const Tensor& x, ProcessGroup& group, flight::Where where = flight::Where::current());

/// Returns this rank's part of x along `dim` in forward, a view; all_gather in backward.
Tensor scatter_to_region(const Tensor& x, ProcessGroup& group, int64_t dim = -1, std::span<const int64_t> sizes = {},
                         flight::Where where = flight::Where::current());

/// all_gather along `dim` in forward; returns this rank's part in backward.
Tensor gather_from_region(const Tensor& x, ProcessGroup& group, int64_t dim = -1, std::span<const int64_t> sizes = {},
                          flight::Where where = flight::Where::current());

}  // namespace tandem::comm
