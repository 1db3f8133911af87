#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace tandem::data {

/// Looks at the directory of an sfnt font (TrueType, OpenType, collections) and says what is wrong: a table that ends
/// past the end of the file, as in a file cut short, or a directory that does. Nothing when all is there, or when the
/// bytes are of another format (FreeType then judges). FreeType itself passes over such tables without a word.
std::optional<std::string> missing_font_bytes(std::span<const std::byte> file);

}  // namespace tandem::data
