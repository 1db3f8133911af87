#include "tandem/memory/timeline.h"

#include <algorithm>
#include <unordered_map>

#include "tandem/memory/detail/book.h"

namespace tandem::memory {
namespace {

/// Plays the events of a log.
class Player {
 public:
  Player(std::span<const Event> events, const Account& held) : live_(detail::sums_of(held)) {
    for (const auto& event : events) {
      if (event.what != Event::What::free) entries_[event.number] = {event.bytes, 0, event.block, event.category};
    }
  }

  void play(const Event& event) {
    if (event.what == Event::What::move) return;
    const auto known = entries_.find(event.number);
    const auto entry =
        known == entries_.end() ? detail::Entry{event.bytes, 0, event.block, event.category} : known->second;
    live_.change(entry.block, entry.category, event.what == Event::What::free ? -entry.bytes : entry.bytes);
  }

  const detail::Sums& live() const { return live_; }

 private:
  std::unordered_map<uint64_t, detail::Entry> entries_;  // with their last category and block
  detail::Sums live_;
};

int64_t activations_of(const detail::Sums& sums) { return sums.all[static_cast<size_t>(Category::activations)]; }

void end_with_update(std::vector<Moment>& moments) {
  for (auto moment = moments.rbegin(); moment != moments.rend() && moment->phase == Phase::forward; ++moment) {
    moment->phase = Phase::optimizer;
  }
}

}  // namespace

Timeline timeline_of(std::span<const Event> events, int64_t step, const Account& held) {
  Timeline timeline;
  Player player(events, held);
  detail::Sums saved, at_peak;
  auto phase = Phase::optimizer;
  double begin = 0;
  int block = 0;
  for (const auto& event : events) {
    if (event.step > step) break;
    if (event.step == step) {
      if (timeline.moments.empty()) begin = event.seconds;
      const bool begins_backward = event.phase == Phase::backward && phase != Phase::backward;
      if (begins_backward && activations_of(player.live()) >= activations_of(saved)) saved = player.live();
      phase = event.phase;
    }
    player.play(event);
    if (event.step != step) continue;
    const auto& live = player.live();
    for (size_t i = 0; i < live.all.size(); ++i) timeline.highest[i] = std::max(timeline.highest[i], live.all[i]);
    if (live.bytes > at_peak.bytes) {
      at_peak = live;
      timeline.peak = timeline.moments.size();
    }
    if (event.what == Event::What::allocate) block = event.block;
    timeline.moments.push_back({event.seconds - begin, live.all, block, event.phase});
  }
  end_with_update(timeline.moments);
  timeline.account = detail::account_of(saved, at_peak);
  return timeline;
}

}  // namespace tandem::memory
