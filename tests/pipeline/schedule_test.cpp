#include "tandem/pipeline/schedule.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/pipeline/proof.h"
#include "tandem/pipeline/simulation.h"
#include "tests/support/text_of.h"

namespace tandem::pipeline {
namespace {

struct Figures {
  double makespan;
  std::vector<double> spans;
  std::vector<double> graphs, held;  // of each rank, in stages of a rank
};

Figures figures_of(const std::string& name, int ranks, int micro_batches, const StageCost& cost = {}) {
  const auto& schedule = schedule_of(name);
  const ScheduleSize size = {.ranks = ranks, .micro_batches = micro_batches};
  const auto program = make_program(schedule, size);
  const auto simulation = simulate(program, even_costs(program, cost));
  Figures figures{.makespan = simulation.makespan};
  const double chunks = schedule.chunks_of(size);
  for (const auto& rank : simulation.ranks) figures.spans.push_back(rank.span);
  for (const auto& held : prove(program)) {
    figures.graphs.push_back(held.graphs / chunks);
    figures.held.push_back(held.both / chunks);
  }
  return figures;
}

using Numbers = std::vector<double>;

TEST(Schedule, GPipe) {
  const auto small = figures_of("gpipe", 4, 8);
  EXPECT_EQ(small.makespan, 33);
  EXPECT_EQ(small.held, Numbers(4, 8));
  EXPECT_EQ(figures_of("gpipe", 8, 16).makespan, 69);
}

TEST(Schedule, OneForwardOneBackward) {
  const auto small = figures_of("1f1b", 4, 8);
  EXPECT_EQ(small.makespan, 33);
  EXPECT_EQ(small.held, (Numbers{4, 3, 2, 1}));
  EXPECT_EQ(figures_of("1f1b", 8, 16).makespan, 69);
}

TEST(Schedule, Interleaved) {
  const auto small = figures_of("interleaved", 4, 8);
  EXPECT_EQ(small.makespan, 28.5);
  EXPECT_EQ(small.held, (Numbers{5.5, 4.5, 3.5, 2.5}));  // (2 (p - r - 1) + (v - 1) p + 1) / v
  EXPECT_EQ(figures_of("interleaved", 8, 16).makespan, 58.5);
}

TEST(Schedule, ZeroBubbleH1) {
  const auto small = figures_of("zb-h1", 4, 8);
  EXPECT_EQ(small.makespan, 27);
  EXPECT_EQ(small.spans, (Numbers{27, 26, 25, 24}));
  EXPECT_EQ(small.graphs, (Numbers{4, 3, 2, 1}));
  EXPECT_EQ(figures_of("zb-h1", 8, 16).makespan, 55);
  const StageCost uneven = {.forward = 1, .input_gradient = 1.2, .weight_gradient = 0.8};
  EXPECT_NEAR(figures_of("zb-h1", 4, 8, uneven).makespan, 28.2, 1e-9);
  EXPECT_NEAR(figures_of("zb-h1", 8, 16, uneven).makespan, 57.8, 1e-9);
}

TEST(Schedule, ZeroBubbleH2) {
  const auto small = figures_of("zb-h2", 4, 8), large = figures_of("zb-h2", 8, 16);
  EXPECT_EQ(small.makespan, 27);
  EXPECT_EQ(small.spans, Numbers(4, 24));
  EXPECT_EQ(small.graphs[0], 7);  // 2p - 1
  EXPECT_EQ(large.makespan, 55);
  EXPECT_EQ(large.spans, Numbers(8, 48));
  EXPECT_EQ(large.graphs[0], 15);
}

TEST(Schedule, ZeroBubbleV) {
  const auto small = figures_of("zb-v", 4, 8), large = figures_of("zb-v", 8, 16);
  EXPECT_EQ(small.makespan, 25.5);
  EXPECT_EQ(small.spans, Numbers(4, 24));
  EXPECT_EQ(small.held, Numbers(4, 4));
  EXPECT_EQ(large.makespan, 51.5);
  EXPECT_EQ(large.spans, Numbers(8, 48));
  EXPECT_EQ(large.held, Numbers(8, 8));
}

TEST(Schedule, VHalf) {
  const auto small = figures_of("v-half", 4, 8), large = figures_of("v-half", 8, 16);
  EXPECT_EQ(small.makespan, 26.5);
  EXPECT_EQ(small.spans, (Numbers{26.5, 25.5, 25.5, 25}));
  EXPECT_EQ(small.held, Numbers(4, 3));
  EXPECT_EQ(large.makespan, 56.5);
  EXPECT_EQ(large.spans.front(), 56.5);
  EXPECT_EQ(large.spans.back(), 51);
  EXPECT_EQ(large.held, Numbers(8, 5));
}

TEST(Schedule, VMin) {
  const auto small = figures_of("v-min", 4, 8), large = figures_of("v-min", 8, 16);
  EXPECT_EQ(small.makespan, 29.5);
  EXPECT_EQ(small.spans, (Numbers{29.5, 28.5, 27.5, 27}));
  EXPECT_EQ(small.held, Numbers(4, 2));
  EXPECT_EQ(large.makespan, 61.5);
  EXPECT_EQ(large.spans.front(), 61.5);
  EXPECT_EQ(large.spans.back(), 55);
  EXPECT_EQ(large.held, Numbers(8, 4));
}

/// From v-min's makespan to zb-v's, and none that is allowed more is slower.
TEST(Schedule, VHeld) {
  for (const auto& [ranks, micro_batches] : {std::pair{2, 4}, {3, 7}, {4, 8}, {5, 9}, {8, 16}}) {
    double before = figures_of("v-min", ranks, micro_batches).makespan;
    const double half = figures_of("v-half", ranks, micro_batches).makespan;
    for (int held = least_held(ranks); held <= 2 * ranks; ++held) {
      const auto program =
          make_program(schedule_of("v-held"), {.ranks = ranks, .micro_batches = micro_batches, .held = held});
      for (const auto& rank : prove(program)) EXPECT_LE(rank.both, held);
      const double makespan = simulate(program, even_costs(program, {})).makespan;
      EXPECT_LE(makespan, before) << ranks << " ranks, " << held << " held";
      before = makespan;
      if (held >= 2 * ((ranks + 2) / 2)) EXPECT_LE(makespan, half);
    }
    EXPECT_LE(before, figures_of("zb-v", ranks, micro_batches).makespan);
  }
}

TEST(Schedule, Inference) {
  EXPECT_EQ(figures_of("inference", 4, 8).makespan, 11);
  EXPECT_EQ(figures_of("inference", 8, 16).makespan, 23);
}

TEST(Schedule, WeightGradientsGoInTheOrderOfTheMicroBatches) {
  for (const auto& schedule : schedules()) {
    const auto program = make_program(schedule, {.ranks = 4, .micro_batches = 8});
    for (const auto& list : program.lists) {
      std::vector<int> next(program.num_stages());
      for (const auto& [what, stage, micro_batch] : list) {
        if (what != What::backward && what != What::weight_gradient) continue;
        EXPECT_EQ(micro_batch, next[stage]++) << schedule.name;
      }
    }
  }
}

TEST(Schedule, NamesWhatItWants) {
  EXPECT_EQ(
      test::text_of<SettingsError>([] { schedule_of("gpip"); }),
      "schedule is 'gpip', wanted gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min, v-held or inference");
  EXPECT_EQ(
      test::text_of<SettingsError>([] { make_program(schedule_of("interleaved"), {.ranks = 4, .micro_batches = 6}); }),
      "micro_batches is 6 with schedule interleaved and 4 ranks, wanted a multiple of them: use another schedule, "
      "or as many micro-batches");
}

}  // namespace
}  // namespace tandem::pipeline
