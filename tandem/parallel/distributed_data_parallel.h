#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

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
///   forward ─ prepare_backward(loss) ─ backward:  grad, grad, [bucket full: all_reduce] grad, grad, [all_reduce]
///
/// The gradient is the SUM over ranks, not the mean: a loss that each rank divides by the global batch gives the
/// gradient of one device, also when the ranks hold unequal parts of the batch. After the first step each .grad is a
/// view into its bucket: no second copy. Setting .grad to nothing between steps is right, detaching it is not.
///
/// Each parameter that requires a gradient must get one in each backward, on each rank. When one does not, that very
/// backward throws c10::ValueError on all ranks, with the same text, the parameter's name and the rank; so it does with
/// one rank. Parameters that require none when the object is made are kept equal and left alone.
///
/// Collective: construction, each backward, sync_buffers(). Memory: the gradients' bytes; with one rank none. The group
/// must outlive the object. Source: c10d::Reducer; Li et al. 2020, PyTorch Distributed (arXiv:2006.15704).
class DistributedDataParallel {
 public:
  /// Parameters and buffers of rank 0 are sent to all ranks. `names` serve error texts, one a parameter.
  DistributedDataParallel(std::vector<Tensor> parameters, std::vector<Tensor> buffers, std::vector<std::string> names,
                          comm::ProcessGroup& group, const DistributedDataParallelOptions& options = {});
  /// The same for all parameters and buffers of a module.
  DistributedDataParallel(const torch::nn::Module& module, comm::ProcessGroup& group,
                          const DistributedDataParallelOptions& options = {});
  ~DistributedDataParallel();

  /// Between forward and backward of a step. `output`: the scalar that backward starts from; `where`: the caller's
  /// place, for messages about the sums; leave it out. Throws c10::Error after a
  /// backward over several ranks that ended with an exception;
  /// c10::ValueError, as backward would, when `output` requires no gradient and the model does.
  void prepare_backward(const Tensor& output, flight::Where where = flight::Where::current());

  /// Gives all ranks the buffers of rank 0 (batch norm's running statistics), in messages of about 1 MiB.
  void sync_buffers();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // weakly known to the graph
};

}  // namespace tandem::parallel
