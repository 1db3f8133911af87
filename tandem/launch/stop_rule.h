#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>

namespace tandem::launch {

/// The signals that ask a job to save and end.
inline constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1};

/// Says which stop signal ends a job at once: a second SIGINT, half a second or more after the first. All other stop
/// signals only ask the job to stop, however often they come.
///
/// SLURM, systemd and a terminal send their signal to every process of a job. A rank then gets it twice, the second
/// time from its launcher, and must not take this for a second request.
class StopRule {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPause{500};

  /// `signal` is one of kStopSignals, received at `now`. May be called in a signal handler.
  bool ends_at_once(int signal, Clock::time_point now = Clock::now()) noexcept;

 private:
  std::atomic<Clock::rep> first_interrupt_{0};  // 0: none yet
};

}  // namespace tandem::launch
