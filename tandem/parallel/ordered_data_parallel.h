#pragma once
#include <memory>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"
#include "tandem/parallel/detail/gradient_arrivals.h"
#include "tandem/parallel/detail/overlap_clock.h"
#include "tandem/parallel/detail/unused_parameters.h"
#include "tandem/parallel/gradient_sync.h"

namespace tandem::parallel {

/// Keeps replicas of a model equal, with the same bits for every number of ranks: the batch of a step is cut into a
/// fixed number of shards, whose gradients are summed in their order.
///
///   4 shards                micro-batch 0   1   2   3          each number of the gradient is the sum
///   1 rank          rank 0  shard       0   1   2   3          ((g0 + g1) + g2) + g3
///   2 ranks         rank 0              0   2
///                   rank 1              1   3
///
/// Micro-batch i of rank r is shard i * ranks + r, so that the gradients come in the order of the shards. After each
/// micro-batch every rank gets its part of all ranks' gradients, and adds them to its sum in rank order; after the last
/// one the sums go to all ranks. Parts are those of split_sizes().
///
/// As DistributedDataParallel otherwise: the gradient is a sum, each trained parameter must get one in the last
/// backward of a step, and parameters and buffers are broadcast from rank 0 at the beginning. Buffers are the caller's
/// to keep equal.
///
/// Memory: the bytes of the gradients, and 1 / ranks of them again for the sum; while gradients travel, as many for
/// what the ranks send each other. Wire, of a step with M micro-batches: M + 1 times (N - 1) / N of the gradients'
/// bytes a rank. Collective: construction, and each after_backward(). The group must outlive the object.
class OrderedDataParallel : public GradientSync, public SyncRehearsal {
 public:
  /// `parameters`: held whole by every rank. `allows_unused`: a step may leave parameters out; those that no shard uses
  /// have no gradient then, and each step sums a byte a parameter besides. Throws c10::ValueError if a tensor is listed
  /// twice.
  OrderedDataParallel(const std::vector<Parameter>& parameters, const std::vector<Tensor>& buffers,
                      comm::ProcessGroup& group, bool allows_unused = false);
  ~OrderedDataParallel() override;

  void before_forward(const MicroBatch& micro) override;
  void before_backward(const Tensor& loss, const MicroBatch& micro = {},
                       flight::Where where = flight::Where::current()) override;
  void after_backward(const MicroBatch& micro) override;
  void unify(const std::vector<Parameter>& optimizer = {}) override {}

  /// Nothing is hidden: gradients travel while nothing is computed.
  Overlap overlap() const override { return clock_.read(); }

  SyncRehearsal* rehearsal() override { return this; }
  SyncMemory memory() override;

 private:
  struct Flat;

  void exchange(bool is_first, bool is_last);
  bool is_spoilt() const;

  comm::ProcessGroup& group_;
  detail::GradientArrivals arrivals_;
  detail::UnusedParameters unused_;
  std::vector<Flat> flats_;  // one an element type
  detail::OverlapClock clock_;
};

}  // namespace tandem::parallel
