#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace tandem::storage {

// Files that a user names on the command line. Links are followed. A device or a pipe (/dev/stdout, a shell's
// substitution, a named pipe) is read and written in place. A named pipe without a process at its other end is an
// error after a few seconds. `what` names the path in errors: "--json file 'x' cannot be written: Permission denied".

/// The whole file as text. Throws DataError if it is longer than `limit` bytes, IoError if it cannot be read.
std::string read_named_file(std::string_view what, const std::filesystem::path& path, uint64_t limit);

/// A regular file is written whole or not at all. Throws IoError.
void write_named_file(std::string_view what, const std::filesystem::path& path, std::string_view text);

/// The same for a file that others write: `write` is given the path of a file beside it, which gets the name when
/// `write` returns. A regular file of the name stays until then. Throws IoError, also if there is something else of
/// that name, and whatever `write` throws.
void write_named_file(std::string_view what, const std::filesystem::path& path,
                      const std::function<void(const std::filesystem::path& unfinished)>& write);

/// Throws IoError if write_named_file() would fail for a reason that is known without writing. Opens nothing: a process
/// that waits at a named pipe would take the end of the check for the end of the file.
void check_named_file(std::string_view what, const std::filesystem::path& path);

/// For tests: how long a named pipe may lack a process at its other end.
void set_pipe_patience(std::chrono::milliseconds patience);

}  // namespace tandem::storage
