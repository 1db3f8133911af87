#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/settings/schema.h"

namespace tandem::settings {

/// Decimal, with `_` between digits and a whole exponent if one likes: "20_902", "1e6". Nothing when it is no such
/// number.
std::optional<int64_t> read_integer(std::string_view text);

/// For a setting that is a number of bytes (parse_bytes): the text as it is, or nothing.
std::optional<std::string> read_size(std::string_view text);

/// The same with a fraction: "1e-3", ".5". Neither infinity nor NaN.
std::optional<double> read_number(std::string_view text);

/// A setting's value as the command line writes it; a list is "a,b,c", an empty one "".
/// Throws SettingsError: "train.lr is 'fast', wanted a number"; also for a text of over 4096 bytes.
Value read_value(const Setting& setting, std::string_view text);

/// The same for a list whose parts are known already.
Value read_list(const Setting& setting, const std::vector<std::string>& parts);

/// The inverse of read_value: the shortest text that gives the same value.
std::string format_value(const Value& value);

/// What the setting takes, for people: "a number", "1 or more", "0..1", "sharded or naive".
std::string wanted(const Setting& setting);

/// The same without bounds: "a number", "a whole number".
std::string wanted_kind(const Setting& setting);

}  // namespace tandem::settings
