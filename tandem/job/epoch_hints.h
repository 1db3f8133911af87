#pragma once
#include <string>
#include <vector>

#include "tandem/job/job.h"

namespace tandem::job {

/// Warnings about a length of training that may not be intended, one line each: images that are in no batch (if 1 in
/// 100 or more), or so few steps in all that hardly anything is learned, unless train.steps asks for them; in a search,
/// alphas that never move, and a guard that never acts.
std::vector<std::string> epoch_hints(const Job& job, int64_t images, int64_t steps_per_epoch);

}  // namespace tandem::job
