#pragma once
#include <exception>
#include <functional>
#include <optional>
#include <string>

namespace tandem::comm::detail {

/// This process among those that a launcher started.
struct Place {
  int rank = 0, size = 1, local_rank = 0;
};

/// The line for stderr, or nothing when another rank says the same: a wrong setting or argument is wrong on all
/// ranks, the first of each machine tells it. All others are told with the rank.
std::optional<std::string> failure_line(const std::exception& error, const Place& place);

/// What torchrun's agent wants in TORCHELASTIC_ERROR_FILE.
std::string torchelastic_error(const std::string& message, int64_t seconds);

/// Prints the line, fills torchrun's error file where there is one; returns the exit status. A process that leaves the
/// line to another one waits for it a few seconds, or until `stop_requested`.
int report_failure(const std::exception& error, const std::function<bool()>& stop_requested = {});

}  // namespace tandem::comm::detail
