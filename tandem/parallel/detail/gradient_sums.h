#pragma once
#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tandem/parallel/detail/overlap_clock.h"
#include "tandem/parallel/gradient_hook.h"

namespace c10d {
class GradBucket;
}

namespace tandem::parallel::detail {

/// Sums the gradient buckets of one backward over the ranks, one after the other, on the thread of a group that nothing
/// else uses meanwhile. The group must outlive this object; a sum that is still running may outlive this object.
class GradientSums {
 public:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;
  using Callback = std::function<void(std::string_view name, const Tensor& gradient)>;

  /// What the sums need; `before`, `after`: see DistributedDataParallelOptions. Null: not called.
  struct Parts {
    std::vector<Tensor> parameters;
    std::vector<std::string> names;
    std::unique_ptr<GradientHook> hook;
    Callback before, after;
  };
  GradientSums(comm::ProcessGroup& channel, Parts parts);

  const Parts& parts() const { return state_->parts; }

  /// Starts to sum a bucket in place; the future's value is its number among those started. Collective: all ranks must
  /// start their buckets in the same order.
  Future start(const c10d::GradBucket& bucket);

  /// Since the last reset().
  bool has_started(const c10d::GradBucket& bucket) const;

  /// The memory of the buckets started since the last reset().
  const std::vector<Tensor>& started() const { return buckets_; }

  /// Begins a new backward. `where`: the call site that asked for it.
  void reset(flight::Where where);

  /// As start(), for a bucket that this rank cannot fill. Its sum contains a NaN on all ranks.
  void start_spoilt(const c10d::GradBucket& bucket);

  /// Waits for all sums. Returns true, on all ranks, if a bucket was spoilt on some rank, or if its first element is
  /// NaN for another reason. Throws what a sum has thrown, such as c10::DistError.
  bool wait_for_spoilt();

  GradientSync::Overlap overlap() const { return state_->clock.read(); }

 private:
  /// Shared with the sums that run.
  struct State {
    Parts parts;
    std::unordered_map<const void*, size_t> index_of;  // of a parameter
    OverlapClock clock;

    GradientBucket describe(const c10d::GradBucket& bucket, flight::Where where) const;
    void sum(const GradientBucket& bucket, comm::ProcessGroup& channel) const;
  };

  comm::ProcessGroup& channel_;
  std::shared_ptr<State> state_;
  flight::Where where_;
  std::vector<Tensor> buckets_;
  std::vector<Future> futures_;
};

/// The gradients of a bucket, as views into it with the sizes and strides of their parameters.
std::vector<Tensor> gradient_views(const c10d::GradBucket& bucket);

}  // namespace tandem::parallel::detail
