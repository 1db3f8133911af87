#pragma once
#include <string>
#include <vector>

#include "tandem/job/job.h"

namespace tandem::job {

/// All ways in which the ranks of a job that needs a search may share its work, as settings beside its own; some of
/// them it cannot have. Settings that were given stay.
std::vector<std::vector<std::string>> candidate_plans(const Job& job);

/// Of these some, the first that the job can have for each number of ranks along tensor and of images in a micro-batch
/// among them.
std::vector<std::vector<std::string>> plans_to_measure(const Job& job);

}  // namespace tandem::job
