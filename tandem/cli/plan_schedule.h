#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/job/job.h"

namespace tandem::cli {

/// A step of the job's pipeline, simulated with pipeline.costs.
struct PlannedSchedule {
  std::string text;  // tables; empty: the job has no pipeline
  nlohmann::json result;
};

/// In stages of a rank together: `schedule.{name,micro_batches,makespan,bubble,cut,ranks[]}`, of each rank `span`, and
/// the most of held_graphs, held_weight_work, `held` (both together) and `messages` under way; null without a pipeline.
/// `cut`: job::cut_of().
PlannedSchedule plan_schedule(const job::Job& job, const std::vector<std::string>& cut);

}  // namespace tandem::cli
