#include <algorithm>

#include "tandem/memory/detail/plan_check.h"
#include "tandem/memory/detail/plan_time.h"
#include "tandem/memory/recompute_plan.h"

namespace tandem::memory {
namespace {

using detail::nanoseconds;

/// A block that runs forward only once: its bytes at the first backward, and the time of the other forward.
struct Item {
  int64_t bytes, saves;
};

bool all_need_input(const Stage& stage) { return std::ranges::all_of(stage.keeps, &Keep::input); }
bool all_need_output(const Stage& stage) { return std::ranges::all_of(stage.keeps, &Keep::output); }

int64_t least_kept(const Stage& stage) { return std::ranges::min(stage.keeps, {}, &Keep::bytes).bytes; }

int64_t gradient_bytes(const Stage& stage) {
  int64_t bytes = stage.output;
  for (const auto& shortcut : stage.shortcuts) bytes += shortcut.bytes;
  return bytes;
}

/// Of the last block, its input and its gradient.
int64_t least_at_first_backward(const std::vector<Stage>& stages) {
  const auto& stage = stages.back();
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& way : stage.keeps) least = std::min(least, way.bytes + way.backward_extra);
  if (all_need_output(stage)) least += stage.output;
  if (all_need_input(stage) && stages.size() > 1) least += stages[stages.size() - 2].output;
  return least + gradient_bytes(stage);
}

/// The most that items within `room` bytes save, if an item can be taken in part.
int64_t most_saved(std::vector<Item> items, int64_t room) {
  std::ranges::sort(items, [](const Item& a, const Item& b) {
    return static_cast<double>(a.saves) * b.bytes > static_cast<double>(b.saves) * a.bytes;
  });
  int64_t saved = 0;
  for (const auto& item : items) {
    if (item.bytes > room) {
      const auto part = static_cast<__int128>(std::max<int64_t>(room, 0)) * item.saves;
      return saved + static_cast<int64_t>((part + item.bytes - 1) / item.bytes);
    }
    room -= item.bytes;
    saved += item.saves;
  }
  return saved;
}

}  // namespace

int64_t least_nanoseconds(const std::vector<Stage>& stages, int64_t budget) {
  detail::check_stages(stages);
  const size_t last = stages.size() - 1;
  int64_t once = 0, again = 0;
  std::vector<Item> items;
  for (size_t i = 0; i <= last; ++i) {
    const int64_t passing = nanoseconds(stages[i].forward);
    int64_t both = std::numeric_limits<int64_t>::max(), forward = passing;
    for (const auto& way : stages[i].keeps) {
      both = std::min(both, std::min(passing, nanoseconds(way.forward)) + nanoseconds(way.backward));
      forward = std::min(forward, nanoseconds(detail::forward_seconds(way, true)));
    }
    once += both;
    if (i == last) break;
    again += forward;
    // The input of the last block lives anyway.
    const bool flow = all_need_output(stages[i]) || all_need_input(stages[i + 1]);
    const bool anyway = i + 1 == last && all_need_input(stages[last]);
    items.push_back({least_kept(stages[i]) + (flow && !anyway ? stages[i].output : 0), forward});
  }
  const int64_t room = budget - least_at_first_backward(stages);
  return once + again - std::min(again, most_saved(std::move(items), room));
}

}  // namespace tandem::memory
