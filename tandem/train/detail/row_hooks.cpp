#include "tandem/train/detail/row_hooks.h"

#include <ATen/ATen.h>

#include "tandem/base/finite.h"

namespace tandem::train::detail {

RowHooks::RowHooks(Task& task, Optimizer& optimizer, double learning_rate) {
  const auto rows = task.row_parameter();
  if (!rows) return;
  task_ = &task;
  place_ = optimizer.place_of(rows->name);
  RowUpdate update;
  if (rows->steps_in_backward) {
    update = [this, step = optimizer.step_rows(place_, learning_rate)](const Rows& some, const Tensor& gradient) {
      if (gradient.is_cpu()) {
        if (all_finite(gradient)) return step(some, gradient);
        is_nonfinite_ = true;
        return;
      }
      const auto is_finite = at::empty({1}, gradient.options().dtype(at::kDouble));
      note_finite({gradient}, is_finite);
      are_finite_ = are_finite_.defined() ? are_finite_.mul_(is_finite) : is_finite;
      step(some, gradient);
    };
  }
  task.set_row_hooks(std::move(update), [&optimizer](const Rows& read) { optimizer.prepare_rows(read); });
}

void RowHooks::note(StepNumbers& numbers) {
  noted_ = numbers.count();
  if (are_finite_.defined()) numbers.add(1).copy_(are_finite_);
}

std::optional<int64_t> RowHooks::nonfinite(const std::vector<double>& numbers) const {
  if (is_nonfinite_ || (are_finite_.defined() && numbers[noted_] == 0)) return static_cast<int64_t>(place_);
  return std::nullopt;
}

RowHooks::~RowHooks() {
  if (task_ != nullptr) task_->set_row_hooks({}, {});
}

}  // namespace tandem::train::detail
