#include "tandem/pipeline/simulation.h"

#include <gtest/gtest.h>

#include "tandem/pipeline/schedule.h"

namespace tandem::pipeline {
namespace {

std::string clock_of(const std::string& name, const ScheduleSize& size) {
  const auto program = make_program(schedule_of(name), size);
  return clock_table(program, simulate(program, even_costs(program, {})), 1.0 / schedule_of(name).chunks_of(size));
}

TEST(ClockTable, Of1F1B) {
  EXPECT_EQ(clock_of("1f1b", {.ranks = 3, .micro_batches = 3}),
            "        0  1  2  3  4  5  6  7  8  9  10 11 12 13 14 \n"
            "rank 0  F0 F1 F2             B0 B0    B1 B1    B2 B2\n"
            "rank 1     F0 F1       B0 B0 F2 B1 B1    B2 B2\n"
            "rank 2        F0 B0 B0 F1 B1 B1 F2 B2 B2\n");
}

TEST(ClockTable, OfZeroBubbleH1) {
  EXPECT_EQ(clock_of("zb-h1", {.ranks = 3, .micro_batches = 4}),
            "        0  1  2  3  4  5  6  7  8  9  10 11 12 13 \n"
            "rank 0  F0 F1 F2       B0 W0 F3 B1 W1 B2 W2 B3 W3\n"
            "rank 1     F0 F1    B0 F2 B1 W0 F3 B2 W1 B3 W2 W3\n"
            "rank 2        F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3\n");
}

TEST(ClockTable, BreaksItsLines) {
  const auto program = make_program(schedule_of("gpipe"), {.ranks = 2, .micro_batches = 2});
  EXPECT_EQ(clock_table(program, simulate(program, even_costs(program, {})), 1, 23),
            "        0  1  2  3  4  \n"
            "rank 0  F0 F1\n"
            "rank 1     F0 F1 B0 B0\n"
            "        5  6  7  8  \n"
            "rank 0  B0 B0 B1 B1\n"
            "rank 1  B1 B1\n");
}

TEST(Simulation, MessagesTakeTime) {
  const auto program = make_program(schedule_of("gpipe"), {.ranks = 2, .micro_batches = 1});
  const std::vector<StageCost> costs(2, {.forward = 1, .output_message = 0.5, .gradient_message = 0.25});
  const auto simulation = simulate(program, costs);
  EXPECT_DOUBLE_EQ(simulation.makespan, 1 + 0.5 + 1 + 2 + 0.25 + 2);
  EXPECT_DOUBLE_EQ(simulation.ranks[1].span, 3);
  EXPECT_DOUBLE_EQ(simulation.bubble, 1 - 6 / (2 * 6.75));
}

/// In the units of MostHeld: three graphs and a weight gradient of them.
TEST(Simulation, TellsWhatIsHeldOverTime) {
  const auto program = make_program(schedule_of("zb-h1"), {.ranks = 3, .micro_batches = 4});
  const auto simulation = simulate(program, even_costs(program, {.graph_bytes = 100, .weight_work_bytes = 60}));
  std::vector<int64_t> bytes;
  for (const auto& timed : simulation.ranks[1].actions) {
    if (!is_message(timed.action.what)) bytes.push_back(timed.bytes);
  }
  EXPECT_EQ(bytes, (std::vector<int64_t>{100, 200, 160, 260, 220, 160, 260, 220, 160, 120, 60, 0}));
  EXPECT_EQ(simulation.ranks[1].peak_bytes, 260);
}

TEST(Simulation, WantsAProgramThatEnds) {
  const auto program = parse_program("0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "my.csv");
  EXPECT_THROW(simulate(program, even_costs(program, {})), c10::ValueError);
  EXPECT_THROW(simulate(program, {}), c10::ValueError);
}

}  // namespace
}  // namespace tandem::pipeline
