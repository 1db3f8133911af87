#pragma once
#include <chrono>
#include <csignal>
#include <optional>
#include <vector>

namespace tandem::launch {

/// Signals as messages: while it lives, SIGCHLD, SIGUSR2 and the stop signals are blocked and come out of wait(). Make
/// it before any other thread starts, so that all of them inherit the block. A signal that the caller had ignored
/// (nohup, a shell's background job) stays ignored.
class SignalInbox {
 public:
  SignalInbox();  // throws IoError
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  /// The next signal; nothing when `timeout` passes first. Without a timeout it sleeps until one comes.
  std::optional<int> wait(std::optional<std::chrono::milliseconds> timeout);

  /// What was blocked before: a child's mask.
  const sigset_t& mask_before() const { return mask_before_; }

 private:
  sigset_t mask_before_;
  struct sigaction child_before_ {};
  int file_ = -1;
};

}  // namespace tandem::launch
