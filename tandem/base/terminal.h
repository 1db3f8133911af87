#pragma once
#include <string>
#include <string_view>

namespace tandem {

/// Columns of the terminal that a stream (STDOUT_FILENO, STDERR_FILENO) writes to; 0 if it is no terminal.
int terminal_columns(int stream);

/// Columns that a UTF-8 text without control characters takes on a terminal: two for wide characters (Chinese,
/// Japanese, Korean, emoji), none for combining marks, one for each other character and each byte that is not UTF-8.
size_t display_width(std::string_view text);

/// Breaks a text at its spaces into lines of at most `columns` columns, each after `indent` spaces and with a line
/// break at its end. A longer word has a line of its own.
std::string wrapped(std::string_view text, size_t columns, size_t indent);

}  // namespace tandem
