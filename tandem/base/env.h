#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace tandem::env {

/// The variable's text; nothing when it is not set or empty.
std::optional<std::string> get(const char* name);

/// The variable as a whole number. Throws SettingsError when it is set to something else.
std::optional<int64_t> get_int(const char* name);

}  // namespace tandem::env
