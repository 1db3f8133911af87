#pragma once
#include <atomic>
#include <optional>

#include "tandem/train/optimizer.h"
#include "tandem/train/task.h"

namespace tandem::train::detail {

/// Connects a task's row_parameter() to the optimizer for one step: the constructor sets the task's row hooks, the
/// destructor removes them. Task and optimizer must outlive this object. Does nothing for a task without a row
/// parameter. If rows are updated in backward, each gradient is checked first: rows whose gradient is not finite are
/// not updated.
class RowHooks {
 public:
  RowHooks(Task& task, Optimizer& optimizer, double learning_rate);
  ~RowHooks();
  RowHooks(const RowHooks&) = delete;
  RowHooks& operator=(const RowHooks&) = delete;

  /// Index of the row parameter in the optimizer's parameters if a gradient of its rows was not finite on this rank,
  /// else nullopt.
  std::optional<int64_t> nonfinite() const;

 private:
  Task* task_ = nullptr;  // null: the task has no row parameter
  size_t place_ = 0;
  std::atomic<bool> is_nonfinite_{false};
};

}  // namespace tandem::train::detail
