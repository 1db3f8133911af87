#include "tandem/cli/stop_signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "tandem/base/error.h"
#include "tandem/launch/stop_rule.h"
#include "tandem/rendezvous/environment.h"

namespace tandem::cli::stop_signals {
namespace {

#define NOTHING_BEGUN "error: stopped before the job had begun; there is nothing to save"
constexpr std::string_view kNothingBegun = NOTHING_BEGUN "\n",
                           kLineOfNothingBegun = "{\"line\": \"" NOTHING_BEGUN "\"}";

// Initialised at compile time: signals may come before any initialiser has run.
constinit launch::StopRule rule;
constinit std::atomic<bool> is_requested{false}, has_begun{false}, has_own_launcher{false};
static_assert(std::atomic<bool>::is_always_lock_free);

bool is_under_own_launcher() {
  const char* run = std::getenv("TORCHELASTIC_RUN_ID");
  return run != nullptr && std::string_view(run) == rendezvous::kOwnRunId;
}

/// `tandem launch` prints one of the lines that its ranks leave. System calls only, as a signal handler must.
void tell_nothing_has_begun() {
  const bool is_rank = is_under_own_launcher() && getpid() == getpgrp();
  const char* path = is_rank ? std::getenv("TORCHELASTIC_ERROR_FILE") : nullptr;
  const int file = path != nullptr ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
  const auto text = file >= 0 ? kLineOfNothingBegun : kNothingBegun;
  (void)!write(file >= 0 ? file : STDERR_FILENO, text.data(), text.size());
}

void on_signal(int signal) {
  const int error = errno;
  if (!has_own_launcher && rule.ends_at_once(signal)) _exit(128 + signal);
  is_requested = true;
  if (!has_begun) {
    tell_nothing_has_begun();
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
  has_own_launcher = is_under_own_launcher();
  has_begun = true;
}

bool requested() noexcept { return is_requested; }

}  // namespace tandem::cli::stop_signals
