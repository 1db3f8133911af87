#pragma once
#include <functional>

#include "tandem/parallel/distributed_data_parallel.h"

namespace tandem::parallel {

/// Lets the ranks of a DistributedDataParallel have different numbers of batches. A rank whose batches have run out
/// adds zeros to the others' sums until all have run out:
///
///   rank 0   begin step   begin step   begin step   end ─ model of rank 0 to all
///   rank 1   begin step   end ······ zeros ·········┘
///   ranks    2            1            1                begin() returns them
///
/// The gradient stays the SUM over the ranks, so the caller chooses its scale: dividing the loss, a sum over the own
/// samples, by begin().samples gives the gradient of one device on all samples of that step; dividing the mean over the
/// own samples by begin().ranks averages over the ranks that still have batches; by group().size(), over all.
///
/// Only the messages of DistributedDataParallel are joined: a model whose forward or backward communicates (a
/// class-sharded head, statistics over the ranks) needs batches on all ranks. Gradient norms are equal on all ranks, so
/// clipping needs no message. An exception ends the others' step as any other: make a new object then.
///
/// All calls are collective: each begin() of one rank meets a begin() or the end() of each other rank.
class Join {
 public:
  /// `replicas` must outlive this object.
  explicit Join(DistributedDataParallel& replicas) : replicas_(replicas) {}

  struct Step {
    int64_t ranks = 0, samples = 0;  // that have a batch in this step; in all of their batches
  };

  /// Must be called before each step of a rank that has a batch. 16 bytes are summed over the ranks.
  Step begin(int64_t own_samples, flight::Where where = flight::Where::current());

  /// Called once by each rank, when its batches have run out: takes part in the others' steps until all have called it,
  /// and then gives every rank the parameters and buffers of a rank that came last.
  ///
  /// `step`: called after each step of the others, with its gradients in .grad. If it does what the others' steps do
  /// (clip, optimizer, zero_grad), the optimizer's state stays equal on all ranks too. By default .grad is reset.
  void end(const std::function<void()>& step = {}, flight::Where where = flight::Where::current());

 private:
  Step meet(Step own, flight::Where where);

  DistributedDataParallel& replicas_;
  int64_t own_steps_ = 0;
};

}  // namespace tandem::parallel
