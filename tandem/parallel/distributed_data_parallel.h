#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"
#include "tandem/parallel/gradient_sync.h"

namespace torch::nn {
class Module;
}

namespace tandem::parallel {

struct DistributedDataParallelOptions {
  int64_t bucket_bytes = 25 << 20;       // gradients travel in buckets of about this size
  int64_t first_bucket_bytes = 1 << 20;  // the first is small, so that sending starts early
};

/// Keeps replicas of a model equal: gradients are summed over the ranks while backward still runs.
///
///   forward ─ before_backward(loss) ─ backward:  grad, grad, [bucket full: all_reduce] grad, grad, [all_reduce]
///
/// The gradient is the SUM over the ranks, not the mean. If each rank divides its loss by the global batch size, the
/// gradient equals that of one device, also when the ranks hold unequal parts of the batch. After the first step each
/// .grad is a view into its bucket, so there is no second copy. Between steps, reset .grad (zero_grad()); do not detach
/// it.
///
/// With several micro-batches the gradients add up in the buckets, and only the last backward sends them: a step costs
/// the same messages and bytes whatever the number of its micro-batches.
///
/// Each parameter that requires a gradient must get one in each last backward of a step, on each rank. Otherwise that
/// backward throws c10::ValueError on all ranks, with the same text, which names the parameter and the rank; this also
/// holds with one rank. Parameters that require no gradient when this object is made are broadcast from rank 0 and then
/// left alone.
///
/// Collective: construction, each last backward, sync_buffers(). Memory: the bytes of the gradients; with one rank
/// none. The group must outlive the object. Source: c10d::Reducer; Li et al. 2020, PyTorch Distributed
/// (arXiv:2006.15704).
class DistributedDataParallel : public GradientSync {
 public:
  /// Broadcasts the parameters and buffers of rank 0 to all ranks. `names`: one per parameter, for error texts.
  DistributedDataParallel(std::vector<Tensor> parameters, std::vector<Tensor> buffers, std::vector<std::string> names,
                          comm::ProcessGroup& group, const DistributedDataParallelOptions& options = {});
  /// The same for all parameters and buffers of a module.
  DistributedDataParallel(const torch::nn::Module& module, comm::ProcessGroup& group,
                          const DistributedDataParallelOptions& options = {});
  ~DistributedDataParallel() override;

  /// Needed only in steps of several micro-batches: there the gradients add up in the buckets from the first backward.
  void before_forward(const MicroBatch& micro) override;

  /// Must be called between forward and backward. Throws c10::Error if the previous backward over several ranks ended
  /// with an exception, and c10::ValueError, as backward would, if `loss` requires no gradient and the model does.
  void before_backward(const Tensor& loss, const MicroBatch& micro = {},
                       flight::Where where = flight::Where::current()) override;

  std::vector<Tensor> owned_gradients() const override;

  /// Broadcasts the buffers of rank 0 to all ranks, in messages of about 1 MiB.
  void sync_buffers() override;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // weakly known to the graph
};

}  // namespace tandem::parallel
