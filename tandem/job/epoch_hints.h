#pragma once
#include <string>
#include <vector>

#include "tandem/job/sections/training.h"

namespace tandem::job {

/// A line for each thing about the length of training that its settings may not have meant: images that no batch takes
/// (from 1 in 100 up), or so few steps in all, where train.steps does not ask for them, that hardly anything is
/// learned.
std::vector<std::string> epoch_hints(const Training& training, int64_t images, int64_t steps_per_epoch);

}  // namespace tandem::job
