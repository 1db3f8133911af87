#pragma once
#include <ATen/core/ivalue.h>

#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

namespace tandem::parallel::detail {

/// The buckets of one backward that are being summed over the ranks. The group must outlive it; a sum under way may
/// outlive both.
class GradientSums {
 public:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;

  explicit GradientSums(comm::ProcessGroup& group) : group_(group) {}

  /// Starts to sum a bucket in place. Collective: the ranks start their buckets in one order.
  Future start(const Tensor& bucket);

  /// How many have been started since the last reset().
  size_t count() const { return buckets_.size(); }

  /// A backward begins, which `where` has asked for.
  void reset(flight::Where where);

  /// The same for a bucket that this rank cannot fill: on all ranks its sum is then not a number.
  void start_spoilt(const Tensor& bucket);

  /// Waits for all of them. True: on some rank a bucket was spoilt, or held what is not a number. The ranks agree.
  /// Throws c10::DistError when a sum fails.
  bool wait_for_spoilt();

 private:
  comm::ProcessGroup& group_;
  flight::Where where_;
  std::vector<Tensor> buckets_;
  std::vector<Future> futures_;
};

}  // namespace tandem::parallel::detail
