#pragma once
#include <ATen/core/ivalue.h>

#include <memory>

#include "tandem/base/tensor.h"
#include "tandem/parallel/detail/overlap_clock.h"
#include "tandem/parallel/mesh.h"

namespace tandem::parallel::detail {

/// Sums and gathers flats over the ranks of a batch on a thread of its own, one after the other, while forward or
/// backward runs. A sum is over the shard axis, of which each rank gets a part, then over the copies of that part along
/// the data axis; a gather is along the shard axis.
///
///   flat     sum: own part   others         gather: own part   others
///   before   a gradient      gradients      a shard            anything
///   after    the sum         undefined      the shard          the others' shards
///
/// Adds in rank order. The mesh must outlive this object; what is still running may outlive this object. Memory: that
/// of comm::reduce_scatter_().
class FlatsBeside {
 public:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;  // a new one is null

  /// Collective.
  explicit FlatsBeside(Mesh& mesh);

  /// Start to sum, or to gather, a flat of equal parts. Collective: all ranks must start their flats in the same order.
  Future start_to_sum(Tensor flat);
  Future start_to_gather(Tensor flat);

  /// Bytes that the sum of such a flat needs for a moment. Collective.
  int64_t sum_bytes(const Tensor& flat);

  /// Waits for a sum, and throws what it has thrown, such as c10::DistError. When it has returned, no other thread
  /// holds the flat.
  void wait(const Future& sum);

  /// Counts how long a sum on the caller's thread takes, which hides nothing.
  template <class Sum>
  void sum_at_once(const Sum& sum) {
    clock_->count_unhidden(sum);
  }

  GradientSync::Overlap overlap() const { return clock_->read(); }

 private:
  template <class Work>
  Future queue(Tensor flat, Work work);

  comm::ProcessGroup& shards_;
  comm::ProcessGroup* replicas_;                                            // null: each part is on one rank
  std::shared_ptr<OverlapClock> clock_ = std::make_shared<OverlapClock>();  // also of the sums that run
};

}  // namespace tandem::parallel::detail
