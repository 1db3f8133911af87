#pragma once
#include <vector>

#include "tandem/train/lr_schedule.h"

namespace tandem::job {

/// The learning rate over the steps.
struct Schedule {
  train::ScheduleOptions options;        // except steps and milestones, set by the data
  std::vector<double> milestone_epochs;  // where the rate falls
  bool changes_by_epoch = false;         // not by step
};

}  // namespace tandem::job
