#pragma once
#include <memory>

#include "tandem/base/context.h"
#include "tandem/job/parts.h"

namespace tandem::cli {

/// The training step of a job on noise, with a task of its own: each step is on the same images.
class TimedStep {
 public:
  /// Collective over `group`, all ranks of the job. The job and the group must outlive this object.
  TimedStep(const job::Job& job, const job::TaskPlan& plan, comm::ProcessGroup& group);

  /// Takes a step. Returns its seconds on this rank. Collective.
  double run();

  /// What this rank's part of a step takes. Collective.
  train::Step::Costs measure();

  /// Waits for what steps have left on its way. Collective.
  void settle();

  int64_t steps() const { return steps_; }
  const train::Step& step() const { return *parts_.step; }

 private:
  TimedStep(const job::Job& job, const job::DataShape& shape, const job::TaskPlan& plan, comm::ProcessGroup& group);

  Context context() const;

  const job::Job& job_;
  data::Batch batch_;
  job::Assembly parts_;
  int64_t steps_ = 0;
};

}  // namespace tandem::cli
