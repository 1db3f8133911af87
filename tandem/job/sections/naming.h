#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/error.h"

namespace tandem::job {

/// The text of a library's error, whose options are called as the settings are: "hold_out is 1" becomes "data.hold_out
/// is 1". A name counts as an option's where it begins the text, where '=' follows, where it has a '_', and after
/// "set", "lower" and "with". `sections`: where settings are looked for, the first that has the name.
std::string with_setting_names(const std::string& text, const std::vector<std::string_view>& sections);

/// Runs `part` and renames the options in the Error that it throws.
template <class Part>
auto naming_settings(const std::vector<std::string_view>& sections, const Part& part) {
  try {
    return part();
  } catch (Error& error) {
    error.rewrite([&](const std::string& text) { return with_setting_names(text, sections); });
    throw;
  }
}

}  // namespace tandem::job
