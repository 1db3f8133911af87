#pragma once
#include <string_view>
#include <vector>

#include "tandem/settings/settings.h"

namespace tandem::job {

/// Sets what a kind of model is trained with unless the settings say otherwise: as it was published. Before anything is
/// read of them.
void apply_presets(settings::Settings& settings);

/// The table of settings with the defaults for such a model, which is the default itself.
std::vector<settings::Setting> settings_for(std::string_view model);

}  // namespace tandem::job
