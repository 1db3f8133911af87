#include "tandem/train/detail/row_hooks.h"

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
      if (all_finite(gradient)) return step(some, gradient);
      is_nonfinite_ = true;
    };
  }
  task.set_row_hooks(std::move(update), [&optimizer](const Rows& read) { optimizer.prepare_rows(read); });
}

std::optional<int64_t> RowHooks::nonfinite() const {
  if (!is_nonfinite_) return std::nullopt;
  return static_cast<int64_t>(place_);
}

RowHooks::~RowHooks() {
  if (task_ != nullptr) task_->set_row_hooks({}, {});
}

}  // namespace tandem::train::detail
