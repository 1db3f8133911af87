#pragma once
#include "tandem/settings/settings.h"

namespace tandem::job {

/// Sets what a kind of model is trained with unless the settings say otherwise: as it was published. Before anything is
/// read of them.
void apply_presets(settings::Settings& settings);

}  // namespace tandem::job
