#pragma once
#include <chrono>
#include <csignal>
#include <optional>
#include <vector>

namespace tandem::launch {

/// Receives signals as messages: while the object lives, SIGCHLD, SIGUSR2 and the stop signals are blocked and returned
/// by wait(). Must be created before any other thread starts, so that all threads inherit the mask. A signal that was
/// ignored before (nohup, a shell's background job) stays ignored.
class SignalInbox {
 public:
  SignalInbox();  // throws a refusal (base/limits.h)
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  /// Returns the next signal, or nullopt if `timeout` passes first. Without a timeout it waits until a signal comes.
  std::optional<int> wait(std::optional<std::chrono::milliseconds> timeout);

  /// The signals blocked before: the mask for child processes.
  const sigset_t& mask_before() const { return mask_before_; }

 private:
  sigset_t mask_before_;
  struct sigaction child_before_ {};
  int file_ = -1;
};

}  // namespace tandem::launch
