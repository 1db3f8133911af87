#pragma once
#include "tandem/train/optimizer.h"
#include "tandem/train/task.h"

namespace tandem::train {

/// Ties a task's row_parameter() to the optimizer for one step: sets the task's row hooks, and takes them out again
/// when it ends. Both must outlive it. Does nothing for a task without a row parameter.
class RowHooks {
 public:
  RowHooks(Task& task, Optimizer& optimizer, double learning_rate);
  ~RowHooks();
  RowHooks(const RowHooks&) = delete;
  RowHooks& operator=(const RowHooks&) = delete;

 private:
  Task* task_ = nullptr;  // null: it has none
};

}  // namespace tandem::train
