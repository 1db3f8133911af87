#pragma once
#include <string_view>

namespace tandem::log {

/// Writes one line to stderr. Lines of several ranks do not mix, and a progress bar on the current line is erased
/// first. Control characters of `text`, including line breaks, are escaped (printable()), so that names from outside
/// cannot control the terminal.
void info(std::string_view text);
void warn(std::string_view text);  // begins with "warning: "

/// Writes `text` to stderr unchanged, under the same lock. Only for the progress bar, whose text is the program's own.
/// `open_line`: `text` leaves the cursor on a line that the next message must erase.
void raw(std::string_view text, bool open_line);

}  // namespace tandem::log
