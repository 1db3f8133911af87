#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace tandem::settings::detail {

/// A place in a text: line and column from 1; columns are counted in bytes.
struct TextPlace {
  size_t line, column;
};

/// Finds where the first key of more than `most` dotted parts begins in a TOML text; returns nullopt if there is none.
/// Reads the text in one pass, without recursion: such a key must be rejected before a parser sees it that makes a
/// table for each part. Skips strings and comments. If the text is not TOML, the result is unspecified.
std::optional<TextPlace> find_deep_key(std::string_view toml, int most);

}  // namespace tandem::settings::detail
