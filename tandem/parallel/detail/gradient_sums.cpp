#include "tandem/parallel/detail/gradient_sums.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <algorithm>
#include <limits>

#include "tandem/base/context.h"
#include "tandem/parallel/detail/stream_future.h"

namespace tandem::parallel::detail {
namespace {

/// The element that marks a spoilt bucket: it is NaN, and so is any sum with it.
Tensor mark_of(const Tensor& bucket) { return bucket.narrow(0, 0, std::min<int64_t>(1, bucket.numel())); }

}  // namespace

std::vector<Tensor> gradient_views(const c10d::GradBucket& bucket) {
  const auto parameters = bucket.getParameters();
  auto views = bucket.getGradients();
  for (size_t i = 0; i < views.size(); ++i) {
    if (!parameters[i].is_non_overlapping_and_dense()) continue;
    views[i] = views[i].as_strided(parameters[i].sizes(), parameters[i].strides(), views[i].storage_offset());
  }
  return views;
}

GradientSums::GradientSums(comm::ProcessGroup& channel, Parts parts)
    : channel_(channel), state_(std::make_shared<State>()) {
  for (size_t i = 0; i < parts.parameters.size(); ++i) {
    state_->index_of[parts.parameters[i].unsafeGetTensorImpl()] = i;
  }
  state_->parts = std::move(parts);
}

GradientBucket GradientSums::State::describe(const c10d::GradBucket& bucket, flight::Where where) const {
  GradientBucket described{bucket.getBuffer(), {}, where};
  if (!parts.hook->reads_members() && !parts.before && !parts.after) return described;
  const auto parameters = bucket.getParameters();
  const auto gradients = gradient_views(bucket);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto index = index_of.at(parameters[i].unsafeGetTensorImpl());
    described.members.push_back({index, parts.names[index], gradients[i]});
  }
  return described;
}

void GradientSums::State::sum(const GradientBucket& bucket, comm::ProcessGroup& channel) const {
  const at::NoGradGuard no_grad;
  const auto tell = [&](const Callback& callback) {
    if (!callback) return;
    for (const auto& member : bucket.members) callback(member.name, member.gradient);
  };
  tell(parts.before);
  parts.hook->sum(bucket, channel);
  tell(parts.after);
}

GradientSums::Future GradientSums::start(const c10d::GradBucket& bucket) {
  const PhaseScope phase(Phase::backward);
  const CategoryScope category(Category::communication);
  const auto done = future_of(c10::IntType::get(), bucket.getBuffer());
  const auto index = static_cast<int64_t>(buckets_.size());
  buckets_.push_back(bucket.getBuffer());
  channel_.queue([state = state_, &channel = channel_, done, index, start = OverlapClock::now(),
                  told = state_->describe(bucket, where_), on = storages_of(bucket.getBuffer())]() mutable {
    try {
      state->sum(told, channel);
    } catch (...) {
      return done->setError(std::current_exception());
    }
    state->clock.has_travelled(start);
    told = {};  // whoever has waited frees the bucket's memory by letting go of it
    complete(*done, index, on);
  });
  futures_.push_back(done);
  return done;
}

bool GradientSums::has_started(const c10d::GradBucket& bucket) const {
  const auto is_same = [&](const Tensor& memory) { return memory.is_same(bucket.getBuffer()); };
  return std::ranges::any_of(buckets_, is_same);
}

void GradientSums::reset(flight::Where where) {
  where_ = where;
  buckets_.clear();
  futures_.clear();
}

void GradientSums::start_spoilt(const c10d::GradBucket& bucket) {
  const at::NoGradGuard no_grad;
  mark_of(bucket.getBuffer()).fill_(std::numeric_limits<double>::quiet_NaN());
  start(bucket);
}

bool GradientSums::wait_for_spoilt() {
  const auto start = OverlapClock::now();
  for (const auto& future : futures_) future->waitAndThrow();
  state_->clock.has_waited(start);
  std::vector<Tensor> marks;  // read at once: a device is waited for
  for (const auto& bucket : buckets_) marks.push_back(mark_of(bucket).isnan());
  return !marks.empty() && at::cat(marks).any().item<bool>();
}

}  // namespace tandem::parallel::detail
