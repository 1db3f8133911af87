#pragma once
#include <deque>
#include <functional>
#include <future>

#include "tandem/comm/process_group.h"
#include "tandem/train/step.h"

namespace tandem::train::detail {

/// The ends of steps, which run one after the other on the thread of a group while later steps begin. After one that
/// throws, those that follow throw the same without being run.
class StepEndings {
 public:
  /// Nobody else may use the group meanwhile. It must outlive this object.
  explicit StepEndings(comm::ProcessGroup& group) : group_(group) {}
  ~StepEndings();  // waits for those that run
  StepEndings(const StepEndings&) = delete;
  StepEndings& operator=(const StepEndings&) = delete;

  comm::ProcessGroup& group() const { return group_; }
  int64_t under_way() const { return static_cast<int64_t>(endings_.size()); }

  void start(std::function<Reading()> end);

  /// Waits for the oldest. Throws what it has thrown.
  Reading wait_first();

  double waited() const { return waited_; }  // seconds, in wait_first()

 private:
  comm::ProcessGroup& group_;
  std::deque<std::future<Reading>> endings_;
  std::exception_ptr failed_;  // of the group's thread
  double waited_ = 0;
};

}  // namespace tandem::train::detail
