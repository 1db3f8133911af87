#pragma once
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <utility>

#include "tandem/base/threads.h"

namespace tandem::rendezvous {

/// Limits how long this process waits for others: until a time has passed, or until a stop is requested.
class Patience {
 public:
  Patience(std::chrono::milliseconds time, std::function<bool()> stop_requested);

  bool is_over() const { return Clock::now() >= end_; }
  double seconds() const { return static_cast<double>(time_.count()) / 1000.0; }
  bool stop_requested() const { return stop_requested_ && stop_requested_(); }

  /// Throws Interrupted, because a stop was requested.
  [[noreturn]] static void interrupt();

  /// Throws Interrupted if a stop is requested within half a second. The signal that has just stopped another process,
  /// which this one sees as lost, may be about to arrive here.
  void interrupt_if_asked_soon() const;

  /// Runs `call` on a thread of its own and returns its result or throws its exception. Returns nullopt if the time is
  /// over first (but waits for a second at least). Throws Interrupted if `call` has not ended one second after a stop
  /// was requested. libtorch's calls ignore signals and, if the server is silent, their time limit: such a thread is
  /// left running, so `call` must own everything that it uses.
  template <typename Result>
  std::optional<Result> await(std::function<Result()> call) const {
    std::promise<Result> promise;
    auto result = promise.get_future();
    start_thread([call = std::move(call), promise = std::move(promise)]() mutable {
      try {
        promise.set_value(call());
      } catch (...) {
        promise.set_exception(std::current_exception());
      }
    }).detach();
    const auto is_ready = [&](std::chrono::milliseconds time) {
      return result.wait_for(time) == std::future_status::ready;
    };
    if (!comes(is_ready)) return std::nullopt;
    return result.get();
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool comes(const std::function<bool(std::chrono::milliseconds)>& is_ready_within) const;

  std::chrono::milliseconds time_;
  std::function<bool()> stop_requested_;
  Clock::time_point end_;
};

}  // namespace tandem::rendezvous
