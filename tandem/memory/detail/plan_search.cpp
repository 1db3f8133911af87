#include "tandem/memory/detail/plan_search.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "tandem/memory/detail/plan_time.h"

namespace tandem::memory::detail {
namespace {

const Frontier kNothing = {{}};

uint64_t key_of(int first, int last, bool replay, int held) {
  return ((static_cast<uint64_t>(first) << 20 | static_cast<uint64_t>(last)) << 20 | static_cast<uint64_t>(held + 1))
             << 1 |
         (replay ? 1 : 0);
}

}  // namespace

PlanSearch::PlanSearch(std::vector<Stage> stages, int64_t from, int64_t to)
    : stages_(std::move(stages)), bytes_(stages_), from_(from), to_(to) {
  for (const auto& stage : stages_) {
    int64_t least = kNever;
    for (const auto& keep : stage.keeps)
      least = std::min(least, nanoseconds(forward_seconds(keep, true)) + nanoseconds(keep.backward));
    least_before_.push_back(least_before_.back() + least);
  }
  whole_ = solve(all());
}

int64_t PlanSearch::input_of(const Part& part) const {
  return part.held == part.first - 1 ? 0 : bytes_.flow_beyond(part.held, part.first - 1);
}

int64_t PlanSearch::gradients_beside(const Part& part) const {
  return part.replay ? bytes_.gradient(part.last) + bytes_.gradients_after(part.last) : 0;
}

int64_t PlanSearch::most_for(const Part& part) const {
  return to_ - (part.held == part.first - 1 ? bytes_.flow_beyond(-1, part.held) : 0);
}

PlanSearch::Beginning PlanSearch::keeping(const Part& part, int keep) const {
  const int s = part.first;
  const auto& way = stages_[s].keeps[keep];
  const int64_t input = input_of(part);
  const int held = way.input ? s - 1 : part.held;
  const int64_t stays = (way.input ? input : 0) + way.bytes + (way.output ? bytes_.flow_beyond(held, s) : 0);
  const int64_t forward = gradients_beside(part) + input + way.bytes + bytes_.flow_beyond(s - 1, s) + way.forward_extra;
  const int64_t backward = bytes_.gradients_after(s) + bytes_.gradient(s) + stays + way.backward_extra;
  return {.end = s,
          .keep = keep,
          .peak = std::max(forward, backward),
          .nanoseconds = nanoseconds(forward_seconds(way, part.replay && s == part.last)) + nanoseconds(way.backward),
          .rest = {s + 1, part.last, part.replay, way.output ? s : bytes_.same_held(held, s)},
          .inner = {},
          .above_rest = stays,
          .above_inner = 0};
}

std::vector<PlanSearch::Beginning> PlanSearch::beginnings(const Part& part) const {
  const int s = part.first;
  const int64_t input = input_of(part);
  std::vector<Beginning> list;
  for (size_t keep = 0; keep < stages_[s].keeps.size(); ++keep) list.push_back(keeping(part, static_cast<int>(keep)));
  int64_t peak = 0, time = 0;
  for (int j = s; j < part.last; ++j) {
    const int64_t running = j == s ? 0 : bytes_.flow_beyond(s - 1, j - 1);
    peak = std::max(peak, running + bytes_.flow_beyond(j - 1, j) + stages_[j].forward_extra);
    time += nanoseconds(stages_[j].forward);
    list.push_back({.end = j,
                    .keep = -1,
                    .peak = gradients_beside(part) + input + peak,
                    .nanoseconds = time,
                    .rest = {j + 1, part.last, part.replay, bytes_.same_held(s - 1, j)},
                    .inner = {s, j, true, s - 1},
                    .above_rest = input,
                    .above_inner = input});
  }
  return list;
}

const Frontier& PlanSearch::solve(const Part& part) {
  if (part.first > part.last) return kNothing;
  const auto key = key_of(part.first, part.last, part.replay, part.held);
  if (const auto found = solved_.find(key); found != solved_.end()) return found->second;
  auto frontier = search(part);
  return solved_.emplace(key, std::move(frontier)).first->second;
}

Frontier PlanSearch::search(const Part& part) {
  if (part.held != part.first - 1 && std::ranges::all_of(stages_[part.first].keeps, &Keep::input)) {
    // Whatever the part does, it holds its input to the end.
    Frontier frontier = solve({part.first, part.last, part.replay, part.first - 1});
    for (auto& tradeoff : frontier) tradeoff.bytes += input_of(part);
    return frontier;
  }
  FrontierBuilder builder;
  const int64_t always = from_ - bytes_.most_before(part.first), most = most_for(part);
  const int64_t times = least_before_[part.last + 1] - least_before_[part.first];
  for (const auto& way : beginnings(part)) {
    const int64_t least = std::max(way.peak, always);
    if (least > most || (way.keep < 0 && time_within(builder.best(), least) <= way.nanoseconds + times)) continue;
    builder.add({least, way.nanoseconds, {solve(way.rest), way.above_rest}, {solve(way.inner), way.above_inner}});
  }
  auto frontier = builder.take();
  while (!frontier.empty() && frontier.back().bytes > most) frontier.pop_back();
  return frontier;
}

const Frontier& PlanSearch::solved(const Part& part) const {
  if (part.first > part.last) return kNothing;
  static const Frontier never;  // the search left it out
  const auto found = solved_.find(key_of(part.first, part.last, part.replay, part.held));
  return found == solved_.end() ? never : found->second;
}

RecomputePlan PlanSearch::plan(int64_t bytes) const {
  RecomputePlan plan;
  append_plan(all(), bytes, plan);
  return plan;
}

void PlanSearch::append_plan(const Part& part, int64_t bytes, RecomputePlan& plan) const {
  if (part.first > part.last) return;
  if (part.held != part.first - 1 && std::ranges::all_of(stages_[part.first].keeps, &Keep::input)) {
    return append_plan({part.first, part.last, part.replay, part.first - 1}, bytes - input_of(part), plan);
  }
  const auto list = beginnings(part);
  const auto time = [&](const Beginning& way) {
    const auto rest = time_within(solved(way.rest), bytes - way.above_rest);
    const auto inner = time_within(solved(way.inner), bytes - way.above_inner);
    return way.peak > bytes || rest == kNever || inner == kNever ? kNever : way.nanoseconds + rest + inner;
  };
  const auto& best = *std::ranges::min_element(list, {}, time);
  TORCH_INTERNAL_ASSERT(time(best) != kNever);
  PlanNode node{.first = part.first, .last = best.end, .keep = std::max(best.keep, 0)};
  append_plan(best.inner, bytes - best.above_inner, node.inner);
  plan.push_back(std::move(node));
  append_plan(best.rest, bytes - best.above_rest, plan);
}

}  // namespace tandem::memory::detail
