#pragma once
#include "tandem/cli/command.h"

namespace tandem::cli {

/// Trains as the words say. `prepare`: changes the settings of a new run before they are read.
int train_with(const Arguments& arguments, void (*prepare)(settings::Settings& settings));

}  // namespace tandem::cli
