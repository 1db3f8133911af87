#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace tandem::settings::detail {

/// Line and column of a text, from 1; columns are bytes.
struct TextPlace {
  size_t line, column;
};

/// Where the first key of more than `most` dotted parts begins in a TOML text, or nothing. Looks at the text alone, in
/// one pass and without recursion: a parser that makes a table for each part must not be given such a key. Texts and
/// comments are passed over. A text that is no TOML may have any answer.
std::optional<TextPlace> find_deep_key(std::string_view toml, int most);

}  // namespace tandem::settings::detail
