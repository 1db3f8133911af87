#pragma once
#include <span>
#include <vector>

#include "tandem/comm/collectives.h"
#include "tandem/comm/handle.h"

// The operators without their gradients: rows along dim 0 of contiguous tensors. Each counts, records and starts one
// call; the handle waits for it. `later`: on thread-ranks the call runs beside its caller.
namespace tandem::comm::detail {

using Sizes = std::vector<int64_t>;

/// What every call needs to know of who makes it.
struct Caller {
  ProcessGroup& group;
  flight::Where where;
  bool later = false;
  bool requires_grad = false;
  int64_t dim = 0;  // that the caller named
};

/// `dim` counted from the front. Throws c10::ValueError for a tensor without dims, c10::IndexError for a dim out of
/// range.
int64_t checked_dim(const Tensor& x, int64_t dim, const char* operation);

/// x is reduced in place.
Handle start_all_reduce(Tensor x, const Caller& caller, Reduce op);

/// x is reduced in place at the root; elsewhere its content is lost.
Handle start_reduce_sum(Tensor x, const Caller& caller, int root);

/// x is filled in place.
Handle start_broadcast(Tensor x, const Caller& caller, int root);

Handle start_all_gather(Tensor rows, const Caller& caller, Sizes sizes);
Handle start_reduce_scatter(Tensor rows, const Caller& caller, Sizes sizes);
Handle start_all_to_all(Tensor rows, const Caller& caller, Sizes sent, Sizes received);

/// [0, ..] but on the root.
Handle start_gather(Tensor rows, const Caller& caller, int root, Sizes sizes);

/// rows: at the root what is cut; elsewhere any tensor with the same trailing dims.
Handle start_scatter(Tensor rows, const Caller& caller, int root, Sizes sizes);

Handle start_barrier(const Caller& caller);

/// How many rows each rank brings; 8 bytes a rank.
Sizes exchange_sizes(int64_t own, const Caller& caller);

}  // namespace tandem::comm::detail
