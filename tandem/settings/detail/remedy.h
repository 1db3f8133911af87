#pragma once
#include <span>
#include <string>
#include <string_view>

#include "tandem/settings/schema.h"

namespace tandem::settings::detail {

/// What may have been meant by a word that is not key=value, with the words after it: a setting with spaces or a colon
/// between key and value, a value without its key, a key that is near. "" for nothing.
std::string remedy_for_word(Schema schema, std::string_view word, std::span<const std::string> rest);

/// What may have been meant by a key and a value with spaces around them.
std::string remedy_for_spaces(Schema schema, std::string_view key, std::string_view value);

/// What may have been meant by a value that the setting does not accept: the same value without quotes or spaces around
/// it, or in lower case. "" for nothing.
std::string remedy_for_value(const Setting& setting, std::string_view value);

}  // namespace tandem::settings::detail
