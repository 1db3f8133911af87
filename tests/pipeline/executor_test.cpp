#include "tandem/pipeline/executor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/comm/world.h"
#include "tandem/layers/linear.h"
#include "tandem/memory/weight_work.h"
#include "tandem/pipeline/detail/held_bytes.h"
#include "tandem/pipeline/measure.h"
#include "tandem/pipeline/schedule.h"
#include "tests/pipeline/stages_model.h"

namespace tandem::pipeline {
namespace {

constexpr int kMostRanks = 4;

TEST(Executor, GradientsAreThoseOfOneDevice) {
  for (const auto& schedule : schedules()) {
    if (!schedule.has_backward) continue;
    for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
      std::vector<int64_t> rows = {3, 1, 2, 4};
      if (schedule.name != "interleaved") rows.push_back(2);
      if (rows.size() % ranks != 0 && schedule.name == "interleaved") rows.resize(ranks);
      Model alone;
      const auto losses = train_alone(alone, rows);
      const ScheduleSize size = {.ranks = ranks, .micro_batches = static_cast<int>(rows.size())};
      const auto what = std::string(schedule.name) + " on " + std::to_string(ranks);
      const auto train = [&](comm::ProcessGroup& group) {
        Model own;
        Executor executor(make_program(schedule, size), group);
        Whole stages(own, rows, executor.program().num_stages());
        for (int step = 0; step < 2; ++step) {
          own.zero_grad();
          executor.run(stages);
          expect_gradients(own, alone, executor.program().stages_of(group.rank()), stages.sizes, what);
        }
        const bool has_last = group.rank() == executor.program().rank_of.back();
        EXPECT_EQ(stages.losses, (has_last ? losses : std::map<int, double>())) << what;
        EXPECT_EQ(stages.ended.size(), 2 * executor.program().stages_of(group.rank()).size()) << what;
      };
      comm::run_ranks(ranks, train, {.threads = 1});
    }
  }
}

/// What a stage was measured to hold tells what a step holds at each of its actions, but for a few numbers.
TEST(Measure, SimulatedBytesAreThoseOfAStep) {
  memory::install_meter();
  const std::vector<int64_t> rows = {40, 40, 40, 40};
  for (const auto* name : {"gpipe", "zb-h1"}) {
    const auto program = make_program(schedule_of(name), {.ranks = 1, .micro_batches = 4});
    comm::run_ranks(1, [&](comm::ProcessGroup& group) {
      Model model;
      Whole stages(model, rows, 1);
      const auto costs = measure_stages(program, 0, stages, [&](int, int i) { return stages.input(i); });
      const auto simulation = simulate(program, costs);
      Executor executor(program, group);
      const auto before = detail::held_bytes();
      std::vector<Timed> times;
      executor.run(stages, &times);
      EXPECT_GT(costs[0].graph_bytes, 10'000);
      EXPECT_EQ(costs[0].weight_work_bytes > 10'000, std::string(name) == "zb-h1") << costs[0].weight_work_bytes;
      for (size_t i = 0; i < times.size(); ++i) {
        EXPECT_NEAR(times[i].bytes - before, simulation.ranks[0].actions[i].bytes, 500) << text_of(times[i].action);
      }
    });
  }
}

TEST(Executor, WantsAsManyRanksAsTheProgram) {
  const auto group = comm::make_single_group();
  const auto program = make_program(schedule_of("gpipe"), {.ranks = 2, .micro_batches = 1});
  EXPECT_THROW(Executor(program, *group), c10::ValueError);
}

TEST(WeightWork, WantsWhatItReadsAsItWas) {
  const auto linear = std::make_shared<layers::Linear>(3, 2);
  linear->initialize(1, "linear");
  const auto x = at::ones({4, 3});
  const auto work = std::make_shared<memory::WeightWork>();
  const memory::WeightWorkScope scope(work);
  linear->forward(x).sum().backward();
  x.zero_();
  EXPECT_THROW(work->run(), c10::Error);
}

}  // namespace
}  // namespace tandem::pipeline
