#include "tandem/launch/signal_inbox.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <algorithm>

#include "tandem/base/limits.h"
#include "tandem/launch/stop_rule.h"

namespace tandem::launch {

SignalInbox::SignalInbox() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  const auto want = [&](int signal) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&wanted, signal);
  };
  std::ranges::for_each(kStopSignals, want);
  want(SIGUSR2);
  // If SIGCHLD is ignored, the kernel reaps children itself and their status is lost.
  struct sigaction normal {};
  normal.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &normal, &child_before_);
  pthread_sigmask(SIG_BLOCK, &wanted, &mask_before_);
  file_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  check_descriptor(file_, "a descriptor for signals cannot be opened");
}

SignalInbox::~SignalInbox() {
  close(file_);
  sigaction(SIGCHLD, &child_before_, nullptr);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::optional<int> SignalInbox::wait(std::optional<std::chrono::milliseconds> timeout) {
  pollfd request{file_, POLLIN, 0};
  poll(&request, 1, timeout ? static_cast<int>(timeout->count()) : -1);
  signalfd_siginfo info;
  if (read(file_, &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace tandem::launch
