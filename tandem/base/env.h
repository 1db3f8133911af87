#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace tandem::env {

/// The variable's value; nullopt if it is not set or empty.
std::optional<std::string> get(const char* name);

/// The variable as a whole number; nullopt if it is not set or empty. Throws SettingsError if it has any other value.
std::optional<int64_t> get_int(const char* name);

}  // namespace tandem::env
