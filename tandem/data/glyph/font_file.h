#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace tandem::data {

/// Checks the table directory of an sfnt font (TrueType, OpenType, collections). Returns an error text if a table, or
/// the directory itself, ends past the end of the file, as in a file that was cut short. Returns nullopt if nothing is
/// missing, or if the file has another format, which is left to FreeType. The check is needed because FreeType ignores
/// such tables silently.
std::optional<std::string> missing_font_bytes(std::span<const std::byte> file);

}  // namespace tandem::data
