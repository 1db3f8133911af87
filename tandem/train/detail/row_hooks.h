#pragma once
#include <atomic>
#include <optional>

#include "tandem/train/detail/step_numbers.h"
#include "tandem/train/optimizer.h"
#include "tandem/train/task.h"

namespace tandem::train::detail {

/// Connects a task's row_parameter() to the optimizer for one step: the constructor sets the task's row hooks, the
/// destructor removes them. Task and optimizer must outlive this object. Does nothing for a task without a row
/// parameter. If rows are updated in backward, each gradient is checked first: on a CPU rows whose gradient is not
/// finite are not updated; on a device they are, since nobody waits for it, and the step tells of them at its end.
class RowHooks {
 public:
  RowHooks(Task& task, Optimizer& optimizer, double learning_rate);
  ~RowHooks();
  RowHooks(const RowHooks&) = delete;
  RowHooks& operator=(const RowHooks&) = delete;

  /// Room among a step's numbers for whether all gradients of rows were finite on this rank.
  void note(StepNumbers& numbers);

  /// Index of the row parameter in the optimizer's parameters if one was not, else nullopt.
  std::optional<int64_t> nonfinite(const std::vector<double>& numbers) const;

 private:
  Task* task_ = nullptr;  // null: the task has no row parameter
  size_t place_ = 0;
  std::atomic<bool> is_nonfinite_{false};  // of a CPU
  Tensor are_finite_;                      // of a device, [1] float64: 0 if one was not
  size_t noted_ = 0;                       // place among the step's numbers
};

}  // namespace tandem::train::detail
