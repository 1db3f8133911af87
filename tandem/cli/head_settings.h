#pragma once
#include "tandem/classifier/softmax_loss.h"
#include "tandem/cli/settings.h"

namespace tandem::cli {

/// What the settings head and head.* say. Throws SettingsError (a list of another length, numbers that do not go
/// together).
classifier::Scoring read_scoring(const Settings& settings);

/// Softening of a step, for heads that anneal it.
classifier::Annealing read_annealing(const Settings& settings);
bool anneals(const Settings& settings);

/// Nothing: all classes are scored. Throws SettingsError for a rate with label smoothing.
std::optional<classifier::Sampling> read_sampling(const Settings& settings);

classifier::BlockOptions read_blocks(const Settings& settings);

}  // namespace tandem::cli
