#pragma once
#include <ATen/core/ivalue.h>

#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

namespace tandem::parallel::detail {

/// Sums the gradient buckets of one backward over the ranks. The group must outlive this object; a sum that is still
/// running may outlive both.
class GradientSums {
 public:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;

  explicit GradientSums(comm::ProcessGroup& group) : group_(group) {}

  /// Starts to sum a bucket in place. Collective: all ranks must start their buckets in the same order.
  Future start(const Tensor& bucket);

  /// Number of buckets started since the last reset().
  size_t count() const { return buckets_.size(); }

  /// Begins a new backward. `where`: the call site that asked for it.
  void reset(flight::Where where);

  /// As start(), for a bucket that this rank cannot fill. Its sum contains a NaN on all ranks.
  void start_spoilt(const Tensor& bucket);

  /// Waits for all sums. Returns true, on all ranks, if a bucket was spoilt on some rank, or if its first element is
  /// NaN for another reason. Throws c10::DistError if a sum fails.
  bool wait_for_spoilt();

 private:
  comm::ProcessGroup& group_;
  flight::Where where_;
  std::vector<Tensor> buckets_;
  std::vector<Future> futures_;
};

}  // namespace tandem::parallel::detail
