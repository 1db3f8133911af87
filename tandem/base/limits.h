#pragma once
#include <exception>
#include <optional>
#include <string>

#include "tandem/base/error.h"

namespace tandem {

/// What a system limits for a process, a user or a container.
enum class Limited { threads, processes, files, memory };

/// The limits on it that are set, which a refusal may come from: "ulimit -u is 40, pids.max is 100"; "" if none is.
std::string limits_on(Limited kind);

/// The error, with ExitCode::out_of_memory, for what the system has refused: `what` is "a thread cannot be started",
/// `fault` an errno.
Error refusal(Limited kind, const std::string& what, int fault);

/// The same for an exception of another library that tells of a refusal (std::bad_alloc, std::system_error, and texts
/// of libtorch and Gloo that quote the system); nullopt for any other.
std::optional<Error> refusal_in(const std::exception& error);

/// Throws the refusal of descriptors unless this process may open `count` more. Raises the soft limit if that helps.
/// `whom`: who wants them, "launch of 4 ranks".
void require_descriptors(int count, const std::string& whom);

/// A descriptor for the process itself, as a pipe or a socket (files that hold data throw IoError): throws the refusal
/// if `result`, of a system call that has just returned, is negative because of a limit.
void check_descriptor(int result, const std::string& what);

}  // namespace tandem
