#pragma once
#include <span>
#include <vector>

#include "tandem/comm/collectives.h"
#include "tandem/comm/handle.h"

// The operators without their gradients, for rows along dim 0 of contiguous tensors. Each function counts, records and
// starts one call; the handle waits for it. `later`: between thread-ranks, the call runs on another thread.
namespace tandem::comm::detail {

using Sizes = std::vector<int64_t>;

/// Who makes a call, and how.
struct Caller {
  ProcessGroup& group;
  flight::Where where;
  bool later = false;
  bool requires_grad = false;
  int64_t dim = 0;  // the dim that the caller passed
};

/// Returns `dim` counted from the front. Throws c10::ValueError if x has no dims, c10::IndexError if `dim` is out of
/// range.
int64_t checked_dim(const Tensor& x, int64_t dim, const char* operation);

/// x is reduced in place.
Handle start_all_reduce(Tensor x, const Caller& caller, Reduce op);

/// x is reduced in place at the root; on the other ranks its content is undefined afterwards.
Handle start_reduce_sum(Tensor x, const Caller& caller, int root);

/// x is filled in place.
Handle start_broadcast(Tensor x, const Caller& caller, int root);

Handle start_all_gather(Tensor rows, const Caller& caller, Sizes sizes);
Handle start_reduce_scatter(Tensor rows, const Caller& caller, Sizes sizes);

/// Equal parts in place: x has the parts of all ranks. After the first call all of them are filled; after the second
/// this rank's part is the sum.
Handle start_all_gather_in_place(Tensor x, const Caller& caller);
Handle start_reduce_scatter_in_place(Tensor x, const Caller& caller);

Handle start_all_to_all(Tensor rows, const Caller& caller, Sizes sent, Sizes received);

/// The result is [0, ..] on all ranks but the root.
Handle start_gather(Tensor rows, const Caller& caller, int root, Sizes sizes);

/// rows: at the root the tensor to split; on the other ranks any tensor with the same trailing dims.
Handle start_scatter(Tensor rows, const Caller& caller, int root, Sizes sizes);

Handle start_barrier(const Caller& caller);

}  // namespace tandem::comm::detail
