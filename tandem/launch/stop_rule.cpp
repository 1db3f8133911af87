#include "tandem/launch/stop_rule.h"

namespace tandem::launch {

bool StopRule::ends_at_once(int signal, Clock::time_point now) noexcept {
  static_assert(std::atomic<Clock::rep>::is_always_lock_free);
  if (signal != SIGINT) return false;
  Clock::rep first = 0;
  if (first_interrupt_.compare_exchange_strong(first, now.time_since_epoch().count())) return false;
  return now - Clock::time_point(Clock::duration(first)) >= kPause;
}

}  // namespace tandem::launch
