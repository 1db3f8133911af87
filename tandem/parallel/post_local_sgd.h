#pragma once
#include <optional>
#include <vector>

#include "tandem/parallel/distributed_data_parallel.h"
#include "tandem/parallel/model_averaging.h"

namespace tandem::parallel {

struct PostLocalSgdOptions {
  int64_t start = 1000;  // the first step, counted from 0, that the ranks take apart
  int64_t every = 16;    // steps from one mean to the next
};

/// Data parallelism at first, then local SGD: the ranks train apart once the model has found its way.
///
///   start = 2, every = 3                                                        unify()
///   rank 0   w ─ step ─┬ sum ┬─ step ─┬ sum ┬─ step ─┬─ mean ─ step ─ step ─ step ─┬─ mean ─ step ─┬─ mean
///   rank 1   w ─ step ─┘     └─ step ─┘     └─ step ─┘         step ─ step ─ step ─┘         step ─┘
///   step         0               1              2                3      4      5               6
///
/// Up to step `start` gradients, buffers and bytes are those of DistributedDataParallel; from then on those of
/// ModelAveraging, whose means come after the steps start, start + every, start + 2 every, ...; if such a step is
/// left out, its mean comes after the next step. The step is that of the context (base/context.h), so that a run that
/// resumes goes on where it was. Gradients of steps apart lie in the same buckets, and are not sent.
///
/// Collective: construction, the backward passes before `start`, after_step() of the steps with a mean, unify(). Memory
/// of DistributedDataParallel, and of ModelAveraging while the ranks meet. The group must outlive the object.
/// Source: Lin et al. 2018, Don't Use Large Mini-Batches, Use Local SGD (arXiv:1808.07217), section 3; the order of
/// steps and means: torch's post_localSGD_hook and PeriodicModelAverager.
class PostLocalSgd : public GradientSync, public SyncRehearsal {
 public:
  /// `parameters`: held whole by every rank. Throws SettingsError: `start` below 0, `every` below 1.
  PostLocalSgd(const std::vector<Parameter>& parameters, const std::vector<Tensor>& buffers, comm::ProcessGroup& group,
               const DistributedDataParallelOptions& ddp, const PostLocalSgdOptions& options);

  void before_forward(const MicroBatch& micro) override;
  void before_backward(const Tensor& loss, const MicroBatch& micro = {},
                       flight::Where where = flight::Where::current()) override;
  void after_backward(const MicroBatch& micro) override;
  void after_step() override;
  void values_replaced() override;
  void unify(const std::vector<Parameter>& optimizer = {}) override;
  bool is_synchronous() const override { return !is_apart_; }
  Overlap overlap() const override { return ddp_.overlap(); }
  SyncRehearsal* rehearsal() override { return this; }
  SyncMemory memory() override;

 private:
  MicroBatch as_summed(const MicroBatch& micro) const;
  int64_t meetings_before(int64_t step) const;

  PostLocalSgdOptions options_;
  DistributedDataParallel ddp_;
  ModelAveraging averaging_;
  bool is_apart_ = false;            // in this step
  bool were_apart_ = false;          // in a step since the last unify()
  std::optional<int64_t> meetings_;  // that were due up to the last step
};

}  // namespace tandem::parallel
