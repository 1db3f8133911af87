#pragma once
#include <string_view>

// How this process hears the stop signals (stop_rule.h). The state is the process's own, as signals are.
namespace tandem::cli {

/// The subcommands that take a stop signal as a request to save and end. To every other subcommand a signal is what it
/// is to any program.
constexpr bool hears_stop_signals(std::string_view subcommand) {
  return subcommand == "train" || subcommand == "launch";
}

}  // namespace tandem::cli

namespace tandem::cli::stop_signals {

/// Handles the stop signals from here to the end of the process. Until begin() there is nothing to save: the first one
/// ends the process with status 75 and one line on stderr. A signal that the caller ignores (nohup, a shell's
/// background job) stays ignored; one that the caller blocks is heard. Makes system calls only, so that it may be
/// called before main().
void hear() noexcept;

/// From here on a stop signal is a request, which requested() tells. StopRule says which one ends the process; to a
/// rank of `tandem launch` the launcher applies it, since a busy machine may pass a first SIGINT on late.
void begin() noexcept;

bool requested() noexcept;

}  // namespace tandem::cli::stop_signals
