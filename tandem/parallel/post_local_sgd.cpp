#include "tandem/parallel/post_local_sgd.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tandem/base/context.h"
#include "tandem/base/error.h"

namespace tandem::parallel {
namespace {

PostLocalSgdOptions checked(const PostLocalSgdOptions& options) {
  if (options.start < 0) {
    throw SettingsError("local_start is " + std::to_string(options.start) + ", wanted 0 or more steps");
  }
  if (options.every < 1) {
    throw SettingsError("local_every is " + std::to_string(options.every) + ", wanted 1 step or more between means");
  }
  return options;
}

DistributedDataParallelOptions with_plain_sums(DistributedDataParallelOptions options) {
  options.hook = nullptr;
  return options;
}

/// Means come when this object asks for them, of a model that DistributedDataParallel has made equal on all ranks.
constexpr ModelAveragingOptions kWhenAsked = {.every = std::numeric_limits<int64_t>::max(), .starts_equal = true};

}  // namespace

PostLocalSgd::PostLocalSgd(const std::vector<Parameter>& parameters, const std::vector<Tensor>& buffers,
                           comm::ProcessGroup& group, const DistributedDataParallelOptions& ddp,
                           const PostLocalSgdOptions& options)
    : options_(checked(options)),
      ddp_(tensors_of(parameters), buffers, names_of(parameters), group, with_plain_sums(ddp)),
      averaging_(parameters, buffers, group, kWhenAsked) {}

/// Apart, a step is one whose last micro-batch never comes: its gradients add up in the buckets.
MicroBatch PostLocalSgd::as_summed(const MicroBatch& micro) const {
  auto more = micro;
  if (is_apart_) ++more.count;
  return more;
}

void PostLocalSgd::before_forward(const MicroBatch& micro) {
  const int64_t step = current_context().step;
  if (micro.is_first()) is_apart_ = step >= options_.start;
  if (is_apart_ && !meetings_) meetings_ = meetings_before(step);
  ddp_.before_forward(as_summed(micro));
}

void PostLocalSgd::before_backward(const Tensor& loss, const MicroBatch& micro, flight::Where where) {
  ddp_.before_backward(loss, as_summed(micro), where);
}

void PostLocalSgd::after_backward(const MicroBatch& micro) {
  if (!is_apart_) return;
  const bool has_samples = micro.samples == 0 || micro.own_samples > 0;
  if (micro.is_last() && has_samples) ddp_.end_own_step();
  averaging_.after_backward(micro);
}

void PostLocalSgd::after_step() {
  if (!is_apart_) return;
  were_apart_ = true;
  averaging_.after_step();
  const int64_t due = meetings_before(current_context().step + 1);
  if (due > std::exchange(meetings_, due)) averaging_.meet();
}

/// A meeting after a step that is left out comes after the next.
int64_t PostLocalSgd::meetings_before(int64_t step) const {
  const int64_t apart = std::max<int64_t>(0, step - options_.start);
  return (apart + options_.every - 1) / options_.every;
}

void PostLocalSgd::values_replaced() {
  meetings_.reset();
  were_apart_ = false;
  averaging_.values_replaced();
}

void PostLocalSgd::unify(const std::vector<Parameter>& optimizer) {
  if (std::exchange(were_apart_, false)) return averaging_.unify(optimizer);
  ddp_.unify();
}

SyncMemory PostLocalSgd::memory() {
  auto memory = ddp_.memory();
  memory.after_step = averaging_.memory().after_step;
  return memory;
}

}  // namespace tandem::parallel
