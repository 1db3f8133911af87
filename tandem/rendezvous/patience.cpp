#include "tandem/rendezvous/patience.h"

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem::rendezvous {
namespace {

constexpr std::chrono::seconds kMoment{1};

}  // namespace

Patience::Patience(std::chrono::milliseconds time, std::function<bool()> stop_requested)
    : time_(time), stop_requested_(std::move(stop_requested)), end_(Clock::now() + time) {}

void Patience::interrupt() {
  throw Interrupted("stopped while the ranks waited for each other to come; nothing had begun");
}

void Patience::interrupt_if_asked_soon() const {
  const auto end = Clock::now() + kMoment / 2;
  do {
    if (stop_requested()) interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } while (Clock::now() < end);
}

bool Patience::comes(const std::function<bool(std::chrono::milliseconds)>& is_ready_within) const {
  const auto end = std::max(end_, Clock::now() + kMoment);  // reporting that the time is over takes a moment too
  std::optional<Clock::time_point> asked;
  while (!is_ready_within(std::chrono::milliseconds(5))) {
    const auto now = Clock::now();
    if (!asked && stop_requested()) asked = now;
    if (asked && now - *asked >= kMoment) interrupt();
    if (now >= end) return false;
  }
  return true;
}

}  // namespace tandem::rendezvous
