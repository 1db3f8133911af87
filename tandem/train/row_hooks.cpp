#include "tandem/train/row_hooks.h"

namespace tandem::train {

RowHooks::RowHooks(Task& task, Optimizer& optimizer, double learning_rate) {
  const auto rows = task.row_parameter();
  if (!rows) return;
  task_ = &task;
  task.set_row_hooks(rows->steps_in_backward ? optimizer.step_rows(rows->place, learning_rate) : RowUpdate(),
                     [&optimizer](const Rows& read) { optimizer.prepare_rows(read); });
}

RowHooks::~RowHooks() {
  if (task_ != nullptr) task_->set_row_hooks({}, {});
}

}  // namespace tandem::train
