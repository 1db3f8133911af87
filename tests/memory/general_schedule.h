#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <vector>

#include "tandem/memory/recompute_plan.h"

namespace tandem::test {

/// The fastest of all schedules, not only of plans: any block may run again at any time, and anything may be dropped at
/// any time. The shortest path over all states of memory, for chains of a few blocks.
class GeneralSchedule {
 public:
  GeneralSchedule(const std::vector<memory::Stage>& stages, int64_t budget) : stages_(stages), budget_(budget) {}

  /// Nanoseconds; nullopt if no schedule fits the budget.
  std::optional<int64_t> fastest() {
    relax({.next = size() - 1}, 0);
    while (!queue_.empty()) {
      const auto [time, state] = queue_.top();
      queue_.pop();
      if (state.next < 0) return time;
      if (times_[state] == time) leave(state, time);
    }
    return std::nullopt;
  }

 private:
  struct State {
    std::array<bool, 5> flow{};    // what a block passes on
    std::array<int8_t, 5> kept{};  // 1 + the way; 0: not kept
    int next = 0;                  // whose backward is next

    auto operator<=>(const State&) const = default;
  };
  using Entry = std::pair<int64_t, State>;

  int size() const { return static_cast<int>(stages_.size()); }
  static int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

  int64_t live(const State& state) const {
    std::array<int64_t, 5> most{};
    int64_t sum = 0;
    for (int i = 0; i < size(); ++i) {
      if (state.flow[i]) {
        most[i] = std::max(most[i], stages_[i].output);
        for (const auto& [source, bytes] : stages_[i].shortcuts) most[source] = std::max(most[source], bytes);
      }
      if (state.kept[i] > 0) sum += stages_[i].keeps[state.kept[i] - 1].bytes;
      if (i > state.next) sum += stages_[i].gradients;
    }
    for (const int64_t bytes : most) sum += bytes;
    return sum;
  }

  int64_t flow_gradient(int i) const {
    int64_t bytes = stages_[i].output;
    for (const auto& shortcut : stages_[i].shortcuts) bytes += shortcut.bytes;
    return bytes;
  }

  bool has_flow(const State& state, int i) const { return i < 0 || state.flow[i]; }

  void leave(const State& state, int64_t time) {
    for (int i = 0; i < size(); ++i) {
      drop(state, i, time);
      if (i <= state.next && has_flow(state, i - 1)) forward(state, i, time);
    }
    const int i = state.next;
    if (state.kept[i] == 0) return;
    const auto& way = stages_[i].keeps[state.kept[i] - 1];
    if ((way.input && !has_flow(state, i - 1)) || (way.output && !state.flow[i])) return;
    if (live(state) + flow_gradient(i) + way.backward_extra > budget_) return;
    auto after = state;
    after.kept[i] = 0;
    --after.next;
    relax(after, time + nanoseconds(way.backward));
  }

  void drop(const State& state, int i, int64_t time) {
    auto without = state;
    if (state.flow[i]) without.flow[i] = false, relax(without, time);
    without = state;
    if (state.kept[i] > 0) without.kept[i] = 0, relax(without, time);
  }

  void forward(const State& state, int i, int64_t time) {
    const int64_t gradient = state.next < size() - 1 ? flow_gradient(state.next) : 0;
    auto after = state;
    after.flow[i] = true;
    if (live(after) + gradient + stages_[i].forward_extra <= budget_) {
      relax(after, time + nanoseconds(stages_[i].forward));
    }
    if (state.kept[i] > 0) return;
    for (size_t keep = 0; keep < stages_[i].keeps.size(); ++keep) {
      after.kept[i] = static_cast<int8_t>(keep + 1);
      const auto& way = stages_[i].keeps[keep];
      if (live(after) + gradient + way.forward_extra <= budget_) relax(after, time + nanoseconds(way.forward));
      if (i + 1 < size()) save(state, i, keep, time);
    }
  }

  /// A forward that ends as soon as all is saved, and makes an output only if that is saved.
  void save(const State& state, int i, size_t keep, int64_t time) {
    const int64_t gradient = state.next < size() - 1 ? flow_gradient(state.next) : 0;
    const auto& way = stages_[i].keeps[keep];
    auto after = state;
    after.kept[i] = static_cast<int8_t>(keep + 1);
    after.flow[i] = state.flow[i] || way.output;
    if (live(after) + gradient + way.forward_extra <= budget_) {
      relax(after, time + nanoseconds(way.forward - way.spared));
    }
  }

  void relax(const State& state, int64_t time) {
    const auto [known, is_new] = times_.try_emplace(state, time);
    if (!is_new && known->second <= time) return;
    known->second = time;
    queue_.emplace(time, state);
  }

  const std::vector<memory::Stage>& stages_;
  const int64_t budget_;
  std::map<State, int64_t> times_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace tandem::test
