#pragma once
#include "tandem/classifier/class_sharded_head.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {

enum class HeadForm { sharded, naive };
HeadForm head_form(const settings::Settings& settings);
std::string_view name_of(HeadForm form);

/// What the settings head and head.* say. Throws SettingsError (a list of another length, numbers that do not go
/// together).
classifier::Scoring read_scoring(const settings::Settings& settings);

/// Softening of a step, for heads that anneal it.
classifier::Annealing read_annealing(const settings::Settings& settings);
bool anneals(const settings::Settings& settings);

/// Nothing: all classes are scored. Throws SettingsError for a rate with label smoothing.
std::optional<classifier::Sampling> read_sampling(const settings::Settings& settings);

/// All of it. `dim`: numbers of an embedding.
classifier::HeadOptions read_head(const settings::Settings& settings, int64_t classes, int64_t dim, HeadForm form);

}  // namespace tandem::cli
