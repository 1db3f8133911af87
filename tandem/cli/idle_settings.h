#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tandem/settings/settings.h"

namespace tandem::cli {

/// True when the setting changes nothing in this job, whatever its value.
bool is_idle(const settings::Settings& settings, std::string_view key);

/// A line for each setting that was given and changes nothing in this job: "head.margin has no effect with
/// head=softmax". One that holds its default is not named.
std::vector<std::string> idle_settings(const settings::Settings& settings);

}  // namespace tandem::cli
