#pragma once

namespace tandem::cli {

/// While it lives, the first SIGINT, SIGTERM, SIGHUP, SIGQUIT or SIGUSR1 asks the job to save and stop; a second one
/// other than SIGUSR1 ends the program at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static bool requested();
};

}  // namespace tandem::cli
