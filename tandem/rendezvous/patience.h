#pragma once
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <utility>

namespace tandem::rendezvous {

/// Waiting for other processes: for how long, and no longer than until somebody asks to stop.
class Patience {
 public:
  Patience(std::chrono::milliseconds time, std::function<bool()> stop_requested);

  bool is_over() const { return Clock::now() >= end_; }
  double seconds() const { return static_cast<double>(time_.count()) / 1000.0; }
  bool stop_requested() const { return stop_requested_ && stop_requested_(); }

  /// Throws Interrupted: somebody has asked to stop.
  [[noreturn]] static void interrupt();

  /// Throws Interrupted when somebody asks to stop within half a second: what stops another process, which is seen
  /// here as its loss, may be on its way to this one.
  void interrupt_if_asked_soon() const;

  /// Runs `call` on a thread of its own and returns its result or throws what it throws; nothing when the time is over
  /// first. Throws Interrupted when it has not ended a second after somebody asked to stop. Libtorch's calls heed no
  /// signal and, with a silent server, no limit: such a thread is left behind, so `call` must own what it uses.
  template <typename Result>
  std::optional<Result> await(std::function<Result()> call) const {
    std::promise<Result> promise;
    auto result = promise.get_future();
    std::thread([call = std::move(call), promise = std::move(promise)]() mutable {
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
