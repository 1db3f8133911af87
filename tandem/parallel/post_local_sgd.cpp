#include "tandem/parallel/post_local_sgd.h"

#include <limits>

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
  if (micro.is_first()) is_apart_ = current_context().step >= options_.start;
  ddp_.before_forward(as_summed(micro));
}

void PostLocalSgd::before_backward(const Tensor& loss, const MicroBatch& micro, flight::Where where) {
  ddp_.before_backward(loss, as_summed(micro), where);
}

void PostLocalSgd::after_backward(const MicroBatch& micro) {
  if (is_apart_) averaging_.after_backward(micro);
}

void PostLocalSgd::after_step() {
  if (!is_apart_) return;
  were_apart_ = true;
  averaging_.after_step();
  if ((current_context().step - options_.start) % options_.every == 0) averaging_.meet();
}

void PostLocalSgd::unify() {
  if (std::exchange(were_apart_, false)) return averaging_.unify();
  ddp_.unify();
}

GradientSync::Overlap PostLocalSgd::overlap() const {
  const auto sums = ddp_.overlap(), means = averaging_.overlap();
  return {sums.travelled + means.travelled, sums.waited + means.waited};
}

}  // namespace tandem::parallel
