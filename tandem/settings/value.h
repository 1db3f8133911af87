#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/settings/schema.h"

namespace tandem::settings {

/// Reads a whole number in decimal, also with `_` between digits or with an exponent: "20_902", "1e6". Returns nullopt
/// if the text is not a whole number that fits int64_t, or has a point or an exponent and is above 2^53.
std::optional<int64_t> read_integer(std::string_view text);

/// For a setting that is a number of bytes: returns `text` unchanged if parse_bytes() accepts it, else nullopt.
std::optional<std::string> read_size(std::string_view text);
inline constexpr OtherText kSizes{"bytes as 512, 64M or 2G, below 8192P", read_size};

/// Reads a number, also with `_` between digits: "1e-3", ".5". Returns nullopt for infinity, NaN and other texts.
std::optional<double> read_number(std::string_view text);

/// Reads a setting's value as the command line writes it; a list is "a,b,c", an empty one "".
/// Throws SettingsError: "train.lr is 'fast', wanted a number"; also for a text of over 4096 bytes.
Value read_value(const Setting& setting, std::string_view text);

/// Like read_value(), for a list that is already split into its parts.
Value read_list(const Setting& setting, const std::vector<std::string>& parts);

/// The inverse of read_value: the shortest text that gives the same value.
std::string format_value(const Value& value);

/// The values that the setting accepts, for people: "a number", "1 or more", "0..1", "sharded or naive".
std::string wanted(const Setting& setting);

/// Like wanted(), without bounds: "a number", "a whole number".
std::string wanted_kind(const Setting& setting);

}  // namespace tandem::settings
