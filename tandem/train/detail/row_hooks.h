#pragma once
#include <atomic>
#include <optional>

#include "tandem/train/optimizer.h"
#include "tandem/train/task.h"

namespace tandem::train::detail {

/// Ties a task's row_parameter() to the optimizer for one step: sets the task's row hooks, and takes them out again
/// when it ends. Both must outlive it. Does nothing for a task without a row parameter. A gradient of rows that are
/// updated in backward is looked at first: rows whose gradient is not finite stay as they are.
class RowHooks {
 public:
  RowHooks(Task& task, Optimizer& optimizer, double learning_rate);
  ~RowHooks();
  RowHooks(const RowHooks&) = delete;
  RowHooks& operator=(const RowHooks&) = delete;

  /// Place of the row parameter in Task::parameters() when a gradient of its rows was not finite on this rank.
  std::optional<int64_t> nonfinite() const;

 private:
  Task* task_ = nullptr;  // null: it has none
  std::atomic<bool> is_nonfinite_{false};
};

}  // namespace tandem::train::detail
