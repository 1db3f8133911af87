#include <algorithm>
#include <array>
#include <set>

#include "tandem/pipeline/schedules/rank_list.h"
#include "tandem/pipeline/simulation.h"

namespace tandem::pipeline {
namespace {

/// When a rank does its share of a micro-batch, in units of time: forward down and up, input gradients up and down. The
/// next micro-batch follows kPeriod units later. No two fall into the same unit of the period.
using Pattern = std::array<int, 4>;
constexpr int kPeriod = 6;

struct Planned {
  int time;
  Action action;

  friend auto operator<=>(const Planned&, const Planned&) = default;
};

/// The list of a rank that would follow the pattern for ever, with each weight gradient in the first unit that is free
/// in each period after its input gradient.
std::vector<Planned> repeat(const Pattern& pattern, int down, int up, int micro_batches) {
  std::set<int> taken;
  for (const int time : pattern) taken.insert(time % kPeriod);
  const auto free_after = [&](int time) {
    do ++time;
    while (!taken.insert(time % kPeriod).second);
    return time;
  };
  const auto [forward_down, forward_up, gradient_up, gradient_down] = pattern;
  const int weights_up = free_after(gradient_up), weights_down = free_after(gradient_down);
  std::vector<Planned> list;
  for (int i = 0; i < micro_batches; ++i) {
    const int at = i * kPeriod;
    list.push_back({forward_down + at, {What::forward, down, i}});
    list.push_back({forward_up + at, {What::forward, up, i}});
    list.push_back({gradient_up + at, {What::input_gradient, up, i}});
    list.push_back({gradient_down + at, {What::input_gradient, down, i}});
    list.push_back({weights_up + at, {What::weight_gradient, up, i}});
    list.push_back({weights_down + at, {What::weight_gradient, down, i}});
  }
  std::ranges::sort(list);
  return list;
}

/// Moves actions to the front, into time that a rank would wait: at each unit it does the first of its list that is
/// ready, as long as all forwards that remain then still fit under the limit. When its forwards are done, weight
/// gradients wait until nothing else is ready.
class Squeeze {
 public:
  Squeeze(std::vector<std::vector<Planned>> lists, int limit)
      : left_(std::move(lists)),
        held_(left_.size()),
        limit_(limit),
        last_stage_(2 * static_cast<int>(left_.size()) - 1) {}

  std::vector<std::vector<Action>> run() {
    std::vector<std::vector<Action>> lists(left_.size());
    for (int now = 0; std::ranges::any_of(left_, [](const auto& list) { return !list.empty(); }); ++now) {
      std::vector<Action> done;
      for (size_t rank = 0; rank < left_.size(); ++rank) {
        const auto next = next_of(rank, now);
        if (next == left_[rank].end()) continue;
        done.push_back(next->action);
        held_[rank] += held_by(next->action.what);
        lists[rank].push_back(next->action);
        left_[rank].erase(next);
      }
      for (const auto& action : done) ends_[action] = now + 1;
    }
    return lists;
  }

 private:
  using List = std::vector<Planned>;

  static int held_by(What what) { return what == What::forward ? 1 : what == What::weight_gradient ? -1 : 0; }

  bool has_ended(What what, int stage, int micro_batch, int now) const {
    const auto at = ends_.find({what, stage, micro_batch});
    return at != ends_.end() && at->second <= now;
  }

  bool is_ready(const Action& action, int now) const {
    const auto [what, stage, micro_batch] = action;
    if (what == What::forward) return stage == 0 || has_ended(What::forward, stage - 1, micro_batch, now);
    if (what == What::weight_gradient) return has_ended(What::input_gradient, stage, micro_batch, now);
    return has_ended(What::forward, stage, micro_batch, now) &&
           (stage == last_stage_ || has_ended(What::input_gradient, stage + 1, micro_batch, now));
  }

  /// The limit is kept if the rest follows in its order.
  bool fits(size_t rank, List::const_iterator first) const {
    int held = held_[rank] + held_by(first->action.what);
    if (held > limit_) return false;
    for (auto it = left_[rank].begin(); it != left_[rank].end(); ++it) {
      if (it == first) continue;
      held += held_by(it->action.what);
      if (held > limit_) return false;
    }
    return true;
  }

  List::iterator next_of(size_t rank, int now) {
    auto& list = left_[rank];
    const bool has_forward =
        std::ranges::any_of(list, [](const Planned& planned) { return planned.action.what == What::forward; });
    const auto find = [&](bool with_weights) {
      return std::ranges::find_if(list, [&](const Planned& planned) {
        if (planned.action.what == What::weight_gradient && !with_weights) return false;
        return is_ready(planned.action, now) && fits(rank, list.begin() + (&planned - list.data()));
      });
    };
    const auto urgent = find(has_forward);
    return urgent != list.end() || has_forward ? urgent : find(true);
  }

  std::vector<List> left_;
  std::vector<int> held_;
  int limit_, last_stage_;
  std::map<Action, int> ends_;
};

using PatternOf = Pattern (*)(int rank, int ranks);

Program squeeze(const ScheduleSize& size, int limit, PatternOf pattern_of) {
  const int ranks = size.ranks;
  Program program{.micro_batches = size.micro_batches, .rank_of = v_stages(ranks)};
  std::vector<std::vector<Planned>> lists;
  for (int rank = 0; rank < ranks; ++rank) {
    lists.push_back(repeat(pattern_of(rank, ranks), rank, 2 * ranks - 1 - rank, size.micro_batches));
  }
  program.lists = Squeeze(std::move(lists), limit).run();
  return program;
}

Pattern half_pattern(int rank, int ranks) {
  const int gap = ranks % 2 == 0 ? 3 : 0;
  return {2 * rank, 3 * ranks - rank - 2, 3 * ranks + gap + 2 * rank - 1, 6 * ranks + gap - rank - 2};
}

Pattern least_pattern(int rank, int ranks) {
  const int gap = ranks % 3 == 0 ? 2 : 0;
  return {rank, 2 * ranks - rank - 1, 2 * ranks + gap + rank, 4 * ranks + gap - rank - 1};
}

int held_by_half(int ranks) { return 2 * ((ranks + 2) / 2); }

/// Units of time that it takes where all actions take one.
double makespan_of(const Program& program) {
  const auto whole = with_messages(program);
  return simulate(whole, even_costs(whole, {.forward = 2, .input_gradient = 2, .weight_gradient = 2})).makespan;
}

}  // namespace

int least_held(int ranks) { return 2 * ((ranks + 4) / 3); }

/// Two stages a rank, down the ranks and up again, so that first stages, whose graphs live long, and last ones, whose
/// live shortly, add up to the same on each rank: p / 2 + 1 micro-batches, half of what 1f1b holds, in less time.
///
/// Source: Qi et al. 2024, Pipeline Parallelism with Controllable Memory, section 3 (arXiv:2405.15362).
Program make_v_half(const ScheduleSize& size) { return squeeze(size, held_by_half(size.ranks), half_pattern); }

/// The same with the least memory: (p + 4) / 3 micro-batches.
Program make_v_min(const ScheduleSize& size) { return squeeze(size, least_held(size.ranks), least_pattern); }

/// What lies between: more held shortens the bubble step by step.
Program make_v_held(const ScheduleSize& size) {
  const int held = std::max(size.held, least_held(size.ranks));
  std::vector<Program> programs = {squeeze(size, held, least_pattern)};
  if (held >= held_by_half(size.ranks)) programs.push_back(squeeze(size, held, half_pattern));
  if (held >= 2 * size.ranks) programs.push_back(make_zero_bubble_v(size));
  return *std::ranges::min_element(programs, {}, makespan_of);
}

}  // namespace tandem::pipeline
