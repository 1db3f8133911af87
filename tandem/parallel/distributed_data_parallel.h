#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"
#include "tandem/parallel/gradient_hook.h"
#include "tandem/parallel/gradient_sync.h"

namespace torch::nn {
class Module;
}

namespace tandem::parallel {

/// Called with a parameter's name and its gradient, which it may change, but not replace: on the thread that sums the
/// buckets, beside backward.
using GradientCallback = std::function<void(std::string_view name, const Tensor& gradient)>;

/// Must be the same on all ranks.
struct DistributedDataParallelOptions {
  int64_t bucket_bytes = 25 << 20;       // gradients travel in buckets of about this size
  int64_t first_bucket_bytes = 1 << 20;  // the first is small, so that sending starts early

  /// Each .grad is a view into its bucket. Otherwise gradients have memory of their own: as many bytes again, and two
  /// copies a step.
  bool gradient_as_bucket_view = true;

  /// A step may leave parameters out. Each step looks for them in its graph, and sends a byte a parameter more.
  bool find_unused_parameters = false;

  /// A step may leave parameters out, but every step of a rank the same ones. Costs nothing after the first step.
  bool static_graph = false;

  /// Broadcasts rank 0's buffers before each step, not only where sync_buffers() is called.
  bool broadcast_buffers = false;

  /// How the gradients of a bucket are summed; null: the first of gradient_hooks(), plain sums.
  const GradientHookKind* hook = nullptr;
  int64_t hook_rank = 2;  // GradientHookOptions::rank

  /// Called for each parameter of a bucket: with this rank's gradient, before it travels, and with the sum over the
  /// ranks, as soon as it is there. In a group of one, both are called at the end of backward.
  GradientCallback before_sum, after_sum;

  const GradientHookKind& hook_kind() const { return hook != nullptr ? *hook : gradient_hooks().front(); }
  GradientHookOptions hook_options() const { return {.bucket_bytes = bucket_bytes, .rank = hook_rank}; }
};

/// Keeps replicas of a model equal: gradients are summed over the ranks while backward still runs.
///
///   forward ─ before_backward(loss) ─ backward:  grad, grad, [bucket full] grad, grad, [bucket full]  wait
///   another thread, group.beside()                           └─ all_reduce ─┘          └─ all_reduce ─┘
///
/// The gradient is the SUM over the ranks, not the mean. If each rank divides its loss by the global batch size, the
/// gradient equals that of one device, also when the ranks hold unequal parts of the batch. By default .grad is a view
/// into its bucket after the first step, so there is no second copy. Between steps, reset .grad (zero_grad()); do not
/// detach it.
///
/// With several micro-batches the gradients add up, and only the last backward sends them: a step costs the same
/// messages and bytes whatever the number of its micro-batches.
///
/// Each parameter that requires a gradient must get one in each last backward of a step, on each rank. Otherwise that
/// backward throws c10::ValueError on all ranks, with the same text, which names the parameter and the rank; this also
/// holds with one rank. With find_unused_parameters or static_graph, a rank that leaves a parameter out adds zeros, and
/// a parameter that all ranks leave out has an undefined .grad. With static_graph, a parameter that gets a gradient
/// though the first step left it out throws c10::ValueError on its rank. Parameters that require no gradient when this
/// object is made are broadcast from rank 0 and then left alone.
///
/// Collective: construction, before_forward(), before_backward(), each last backward, shadow_step(), sync_buffers(),
/// copy_from(). Memory: the bytes of the gradients, and what the hook holds; with one rank none. The
/// group must outlive the object. Source: c10d::Reducer; Li et al. 2020, PyTorch Distributed (arXiv:2006.15704).
class DistributedDataParallel : public GradientSync, public SyncRehearsal {
 public:
  /// Broadcasts the parameters and buffers of rank 0 to all ranks. `names`: one per parameter, for error texts. Throws
  /// c10::ValueError if a tensor is listed twice.
  DistributedDataParallel(std::vector<Tensor> parameters, std::vector<Tensor> buffers, std::vector<std::string> names,
                          comm::ProcessGroup& group, const DistributedDataParallelOptions& options = {});
  /// The same for all parameters and buffers of a module; one that is registered twice counts once.
  DistributedDataParallel(const torch::nn::Module& module, comm::ProcessGroup& group,
                          const DistributedDataParallelOptions& options = {});
  ~DistributedDataParallel() override;

  /// Needed only with broadcast_buffers, and in steps of several micro-batches: there the gradients add up in the
  /// buckets from the first backward.
  void before_forward(const MicroBatch& micro) override;

  /// Must be called between forward and backward. Throws c10::Error if the previous backward over several ranks ended
  /// with an exception, and c10::ValueError, as backward would, if `loss` requires no gradient and the model does.
  void take_gradients(flight::Where where = flight::Where::current()) override;
  void start_to_take(const std::vector<Tensor>& complete, flight::Where where = flight::Where::current()) override;
  void before_backward(const Tensor& loss, const MicroBatch& micro = {},
                       flight::Where where = flight::Where::current()) override;

  /// Takes part in a step of the other ranks without a batch: adds zeros, whatever .grad holds. The sums are in .grad
  /// afterwards. See join.h.
  void shadow_step(flight::Where where = flight::Where::current());

  /// Ends a step none of whose micro-batches was told to be the last: the gradients stay this rank's own. A parameter
  /// that the step has left out has an undefined .grad; it throws c10::ValueError where no step may leave out any. Not
  /// collective.
  void end_own_step();

  Overlap overlap() const override;
  SyncRehearsal* rehearsal() override { return this; }
  SyncMemory memory() override;

  /// Broadcasts the buffers of rank 0 to all ranks, in messages of about 1 MiB.
  void sync_buffers();
  void unify(const std::vector<Parameter>& optimizer = {}) override { sync_buffers(); }

  /// Broadcasts the parameters and buffers of rank `root` to all ranks.
  void copy_from(int root);

  /// Makes .grad of all parameters undefined.
  void zero_grad();

  comm::ProcessGroup& group() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // weakly known to the graph
};

}  // namespace tandem::parallel
