#pragma once
#include <string>
#include <string_view>

namespace tandem {

/// `text` for a terminal or a log: control characters (U+0000-001F, U+007F-009F) and bytes that are not UTF-8 are
/// written as \xNN, so that text from outside cannot control the terminal. All other text stays as it is. The result is
/// cut once it reaches `limit` bytes, and then ends with "...".
std::string printable(std::string_view text, size_t limit = std::string_view::npos);

/// The same, but line breaks stay.
std::string printable_lines(std::string_view text);

/// `text` in single quotes, for an error text: printable(), cut at 120 bytes.
std::string quote(std::string_view text);

/// True for well-formed UTF-8 (no overlong form, no surrogate).
bool is_utf8(std::string_view text);

/// Bytes of the UTF-8 character that begins at `at`; 0 if it is malformed (Unicode 15, table 3-7).
size_t utf8_length(std::string_view text, size_t at);

/// True for UTF-8 without control characters: text that may go into a file and onto a terminal.
bool is_plain_text(std::string_view text);

}  // namespace tandem
