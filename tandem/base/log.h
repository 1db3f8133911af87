#pragma once
#include <string_view>

namespace tandem::log {

/// One line on stderr, whole even when several ranks write at once. A progress bar on the same line is wiped first.
/// Control characters of `text`, line breaks too, are escaped (printable()): names from outside steer no terminal.
void info(std::string_view text);
void warn(std::string_view text);  // begins with "warning: "

/// Writes `text` to stderr as it is, under the same lock (the progress bar's door): its text is the program's own.
/// `open_line`: the text leaves the cursor on a line that later messages must wipe.
void raw(std::string_view text, bool open_line);

}  // namespace tandem::log
