#pragma once
#include <future>
#include <memory>

#include "tandem/base/tensor.h"
#include "tandem/parallel/detail/overlap_clock.h"
#include "tandem/parallel/mesh.h"

namespace tandem::parallel::detail {

/// Sums gradients over the ranks of a batch on a thread of its own, one flat after the other, while backward runs:
/// over the shard axis, of which each rank gets a part, then over the copies of that part along the data axis.
///
///   flat     own part          others
///   before   a gradient        gradients
///   after    the sum           undefined
///
/// Adds in rank order. The mesh must outlive this object; a sum that is still running may outlive this object. Memory:
/// that of comm::reduce_scatter_().
class SumsBeside {
 public:
  /// Collective.
  explicit SumsBeside(Mesh& mesh);

  /// Starts to sum a flat of equal parts. Collective: all ranks must start their flats in the same order.
  std::future<void> start(Tensor flat);

  /// Waits for a sum, and throws what it has thrown, such as c10::DistError. When it has returned, no other thread
  /// holds the flat.
  void wait(std::future<void>& sum);

  /// Counts how long a sum on the caller's thread takes, which hides nothing.
  template <class Sum>
  void sum_at_once(const Sum& sum) {
    const auto start = OverlapClock::now();
    sum();
    clock_->has_travelled(start);
    clock_->has_waited(start);
  }

  GradientSync::Overlap overlap() const { return clock_->read(); }

 private:
  comm::ProcessGroup &shards_, &replicas_;
  std::shared_ptr<OverlapClock> clock_ = std::make_shared<OverlapClock>();  // also of the sums that run
};

}  // namespace tandem::parallel::detail
