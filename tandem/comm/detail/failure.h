#pragma once
#include <exception>
#include <functional>
#include <optional>
#include <string>

namespace tandem::comm::detail {

/// The rank of this process among those that a launcher started; the defaults stand for no launcher.
struct Place {
  int rank = 0, size = 1, local_rank = 0;
};

/// Returns the line for stderr, or nullopt if another rank prints the same line: a wrong setting or argument is wrong
/// on all ranks, and only the first rank of each machine reports it. All other errors are reported with the rank.
std::optional<std::string> failure_line(const std::exception& error, const Place& place);

/// For the agent of `tandem launch`: the line that it prints, if this rank has one, and the exit status.
struct LastWord {
  std::optional<std::string> line;
  int status = 0;
};

/// The JSON text that torchrun's agent expects in TORCHELASTIC_ERROR_FILE. `seconds`: time since the epoch.
std::string torchelastic_error(const std::string& message, int64_t seconds,
                               const std::optional<LastWord>& last = std::nullopt);

/// Prints the error line, or leaves it to `tandem launch`; writes torchrun's error file if there is one; and returns
/// the exit status. A process that leaves the line to another rank waits for that rank for a few seconds, or until
/// stop_requested() returns true.
int report_failure(const std::exception& error, const std::function<bool()>& stop_requested = {});

}  // namespace tandem::comm::detail
