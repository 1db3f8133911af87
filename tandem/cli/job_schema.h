#pragma once
#include <string_view>

#include "tandem/settings/schema.h"

namespace tandem::cli {

/// How `data` names a folder: "images:photos".
inline constexpr std::string_view kImagesPrefix = "images:", kFacesPrefix = "faces:", kMarketPrefix = "market1501:";

/// The settings of train, eval, plan and memory.
settings::Schema job_schema();

}  // namespace tandem::cli
