#pragma once
#include <string_view>

// How this process handles the stop signals (stop_rule.h). The state is global to the process, as signals are.
namespace tandem::cli {

/// Returns true for subcommands that treat a stop signal as a request to save and end. In all other subcommands signals
/// have their usual effect.
constexpr bool hears_stop_signals(std::string_view subcommand) {
  return subcommand == "train" || subcommand == "search" || subcommand == "launch";
}

}  // namespace tandem::cli

namespace tandem::cli::stop_signals {

/// Starts to handle the stop signals, until the end of the process. Until begin() there is nothing to save: the first
/// signal ends the process with status 75 and one line on stderr. A signal that the parent process ignores (nohup, a
/// shell's background job) stays ignored; a signal that it blocks is unblocked. Makes system calls only, so that it may
/// be called before main().
void hear() noexcept;

/// From now on a stop signal is a request, which requested() reports. StopRule decides which signal ends the process at
/// once. For a rank of `tandem launch` the launcher applies that rule, since a busy machine may deliver a first SIGINT
/// late.
void begin() noexcept;

bool requested() noexcept;

}  // namespace tandem::cli::stop_signals
