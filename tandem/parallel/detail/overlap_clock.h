#pragma once
#include <atomic>
#include <chrono>

#include "tandem/parallel/gradient_sync.h"

namespace tandem::parallel::detail {

/// Adds up how long messages travel and how long a step waits for them. Safe to use from several threads.
class OverlapClock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static Time now() { return std::chrono::steady_clock::now(); }

  /// A message that was started at `start` is there.
  void has_travelled(Time start) { travelled_ += nanoseconds_since(start); }

  /// The step has waited for messages since `start`.
  void has_waited(Time start) { waited_ += nanoseconds_since(start); }

  /// Does what travels and is waited for at once, which hides nothing.
  template <class Work>
  void count_unhidden(const Work& work) {
    const auto start = now();
    work();
    has_travelled(start);
    has_waited(start);
  }

  GradientSync::Overlap read() const { return {seconds(travelled_), seconds(waited_)}; }

 private:
  static int64_t nanoseconds_since(Time start) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now() - start).count();
  }
  static double seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

  std::atomic<int64_t> travelled_ = 0, waited_ = 0;  // nanoseconds
};

}  // namespace tandem::parallel::detail
