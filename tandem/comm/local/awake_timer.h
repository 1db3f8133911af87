#pragma once
#include <algorithm>
#include <chrono>

namespace tandem::comm {

/// Limits a wait that is made of glances. Time in which this process stood still, as one that is suspended does, counts
/// for one long glance: those that it waits for may have stood still with it.
class AwakeTimer {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;
  static constexpr Milliseconds kGlance{50}, kLongest{4 * kGlance};

  explicit AwakeTimer(Milliseconds limit, Clock::time_point now = Clock::now()) : left_(limit), last_(now) {}

  /// How long to wait before has_ended() is asked again.
  Milliseconds glance() const { return std::clamp(std::chrono::ceil<Milliseconds>(left_), Milliseconds(0), kGlance); }

  bool has_ended(Clock::time_point now = Clock::now()) {
    left_ -= std::min<Clock::duration>(now - last_, kLongest);
    last_ = now;
    return left_ <= Clock::duration::zero();
  }

 private:
  Clock::duration left_;
  Clock::time_point last_;
};

}  // namespace tandem::comm
