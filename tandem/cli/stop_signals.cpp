#include "tandem/cli/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace tandem::cli {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1};
std::array<struct sigaction, kSignals.size()> before;
std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int signal) {
  if (stop.exchange(true) && signal != SIGUSR1) _exit(128 + signal);
}

}  // namespace

StopSignals::StopSignals() {
  stop = false;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before[i]);
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before[i], nullptr);
}

bool StopSignals::requested() { return stop; }

}  // namespace tandem::cli
