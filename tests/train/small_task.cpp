#include "tests/train/small_task.h"

#include <ATen/ATen.h>

#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"

namespace tandem::train {
namespace {

constexpr int64_t kRows = 5;

}  // namespace

SmallTask::SmallTask(comm::ProcessGroup& group) : group_(group) {
  const auto [begin, end] = comm::split_range(kRows, group.size(), group.rank());
  rows_ = {0, begin, end - begin, kRows};
  w_ = at::tensor({0.5f, -1.f, 2.f}).requires_grad_();
  v_ = (at::arange(2 * kRows, at::kFloat).reshape({kRows, 2}) / 10).slice(0, begin, end).clone().requires_grad_();
  seen_ = at::zeros({2});
}

Tensor SmallTask::loss(const data::Batch& batch, std::span<const int64_t> sizes) {
  const Step step = change ? change(is_training_ ? step_ : 0) : Step();
  if (is_training_) seen_.add_(step.seen);
  // A hook changes the gradient alone; the value stays.
  const auto with_factor = [](const Tensor& tensor, double factor) {
    auto same = tensor * 1;
    if (same.requires_grad()) same.register_hook([factor](const Tensor& gradient) { return gradient * factor; });
    return same;
  };
  const auto w = with_factor(w_, step.gradient_of_w);
  const auto v = with_factor(steps_in_backward ? v_.detach() : v_, step.gradient_of_v);
  const auto own = (w * w).sum() / static_cast<double>(group_.size()) + (v * v).sum();
  if (steps_in_backward && is_training_ && update_) {
    for (int64_t row = 0; row < v_.size(0); ++row) {
      update_({.begin = row, .count = 1}, 2 * step.gradient_of_v * v_.detach().narrow(0, row, 1));
    }
  }
  auto value = own.detach().clone();
  comm::all_reduce_(value, group_);
  const double factor = micro_batch_++ >= step.from ? step.loss : 1;
  return own + (value * factor - own.detach());  // the value is everybody's, the gradient this rank's share
}

Task::Answers SmallTask::evaluate(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) {
  const auto classes = at::arange(k, at::kLong).expand({batch.labels.size(0), k});
  return {{classes, at::ones(classes.sizes())}, loss(batch, sizes)};
}

std::vector<Parameter> SmallTask::parameters() const {
  return {Parameter::replicated("w", w_), Parameter::split("v", v_, rows_)};
}

std::optional<RowParameter> SmallTask::row_parameter() const {
  return steps_in_backward ? std::optional(RowParameter{.name = "v", .steps_in_backward = true}) : std::nullopt;
}

}  // namespace tandem::train
