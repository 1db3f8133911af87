#include "tandem/cli/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string_view>

#include "tandem/base/env.h"
#include "tandem/base/error.h"
#include "tandem/launch/stop_rule.h"
#include "tandem/rendezvous/environment.h"

namespace tandem::cli::stop_signals {
namespace {

constexpr std::string_view kNothingBegun = "error: stopped before the job had begun; there is nothing to save\n";

// Initialised at compile time: signals may come before any initialiser has run.
constinit launch::StopRule rule;
constinit std::atomic<bool> is_requested{false}, has_begun{false}, has_own_launcher{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int signal) {
  const int error = errno;
  if (!has_own_launcher && rule.ends_at_once(signal)) _exit(128 + signal);
  is_requested = true;
  if (!has_begun) {
    (void)!write(STDERR_FILENO, kNothingBegun.data(), kNothingBegun.size());
    _exit(static_cast<int>(ExitCode::preempted));
  }
  errno = error;
}

}  // namespace

void hear() noexcept {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigset_t all;
  sigemptyset(&all);
  for (const int signal : launch::kStopSignals) {
    sigaddset(&all, signal);
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
  sigprocmask(SIG_UNBLOCK, &all, nullptr);
}

void begin() noexcept {
  has_own_launcher = env::get("TORCHELASTIC_RUN_ID") == rendezvous::kOwnRunId;
  has_begun = true;
}

bool requested() noexcept { return is_requested; }

}  // namespace tandem::cli::stop_signals
