#include "tandem/pipeline/schedule.h"

#include <algorithm>
#include <array>

#include "tandem/base/error.h"
#include "tandem/base/suggest.h"
#include "tandem/pipeline/schedules/rank_list.h"

namespace tandem::pipeline {
namespace {

constexpr std::array<Schedule, 10> kSchedules = {{
    {.name = "gpipe", .doc = "all forwards, then all backwards, and all micro-batches held", .make = make_gpipe},
    {.name = "1f1b",
     .doc = "a forward and a backward in turn, with as many held as there are ranks behind",
     .make = make_one_f_one_b},
    {.name = "interleaved",
     .doc = "the same with several stages a rank, pipeline.chunks, and a shorter bubble",
     .chunks = 0,
     .make = make_interleaved},
    {.name = "zb-h1",
     .doc = "as 1f1b, but weight gradients come later, and fill a third of the bubble",
     .make = make_zero_bubble_h1},
    {.name = "zb-h2",
     .doc = "no bubble if the optimizer does not wait for all ranks, with almost twice as many held",
     .make = make_zero_bubble_h2},
    {.name = "zb-v",
     .doc = "two stages a rank, down and up again, no bubble either, and as many held as ranks",
     .chunks = 2,
     .goes_back = true,
     .make = make_zero_bubble_v},
    {.name = "v-half",
     .doc = "two stages a rank, half of what 1f1b holds",
     .chunks = 2,
     .goes_back = true,
     .make = make_v_half},
    {.name = "v-min",
     .doc = "two stages a rank, a third of what 1f1b holds",
     .chunks = 2,
     .goes_back = true,
     .make = make_v_min},
    {.name = "v-held",
     .doc = "two stages a rank, the fastest of these three, where forward and each half of backward take as long, with "
            "at most pipeline.held graphs of stages",
     .chunks = 2,
     .goes_back = true,
     .takes_held = true,
     .make = make_v_held},
    {.name = "inference", .doc = "forwards alone", .has_backward = false, .make = make_inference},
}};

}  // namespace

std::vector<int> linear_stages(int ranks, int chunks) {
  std::vector<int> rank_of;
  for (int stage = 0; stage < ranks * chunks; ++stage) rank_of.push_back(stage % ranks);
  return rank_of;
}

std::vector<int> v_stages(int ranks) {
  std::vector<int> rank_of;
  for (int stage = 0; stage < 2 * ranks; ++stage) rank_of.push_back(std::min(stage, 2 * ranks - 1 - stage));
  return rank_of;
}

std::vector<int> Schedule::rank_of(const ScheduleSize& size) const {
  return goes_back ? v_stages(size.ranks) : linear_stages(size.ranks, chunks_of(size));
}

std::span<const Schedule> schedules() { return kSchedules; }

const Schedule& schedule_of(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& schedule : kSchedules) {
    if (schedule.name == name) return schedule;
    names.emplace_back(schedule.name);
  }
  throw SettingsError("schedule is '" + std::string(name) + "', wanted " + one_of(names));
}

Program inference_program(std::vector<int> rank_of, int micro_batches) {
  const auto stages = static_cast<int>(rank_of.size());
  const int ranks = 1 + *std::ranges::max_element(rank_of);
  Program program{.micro_batches = micro_batches, .rank_of = std::move(rank_of)};
  program.lists.resize(ranks);
  std::vector<int> done(stages, 0);
  while (done.back() < micro_batches) {
    const auto before = done;
    std::vector<bool> is_busy(ranks, false);
    for (int stage = stages; stage-- > 0;) {
      const int rank = program.rank_of[stage];
      const int ready = stage == 0 ? micro_batches : before[stage - 1];
      if (is_busy[rank] || before[stage] >= ready) continue;
      is_busy[rank] = true;
      program.lists[rank].push_back({What::forward, stage, done[stage]++});
    }
  }
  return with_messages(std::move(program));
}

Program make_program(const Schedule& schedule, const ScheduleSize& size) {
  auto program = schedule.make(size);
  if (!schedule.has_backward) return program;
  if (size.head && !program.divides_head()) program = divide_head(std::move(program), *size.head);
  return with_messages(std::move(program));
}

}  // namespace tandem::pipeline
