#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"
#include "tests/support/python.h"

// tandem bench pipeline.
namespace tandem::cli {
namespace {

TEST(PipelineBench, WhatDoesNotDivideIsRefused) {
  const auto ended = test::run_here({"bench", "pipeline", "batch=10"});
  EXPECT_EQ(ended.status, 78);
  EXPECT_EQ(ended.err, "error: batch is 10 with micro_batches 8, wanted a multiple of them\n");
  EXPECT_EQ(test::run_here({"bench", "pipeline", "schedules=v-half"}).status, 78);
  const auto uneven = test::run_here({"bench", "pipeline", "ranks=4"});
  EXPECT_EQ(uneven.status, 78);
  EXPECT_EQ(uneven.err,
            "error: ranks is 4 with schedule interleaved, whose 8 stages do not divide the 12 blocks, wanted 2 or 3\n");
}

TEST(PipelineBench, MeasuresOursAsThreadsAndAsProcessesBesideThePeer) {
  if (!test::python_has_torch()) GTEST_SKIP() << test::python() << " has no torch";
  const auto ended = test::run_command(
      test::tandem_command({"bench", "pipeline", "modes=threads,processes", "schedules=interleaved", "micro_batches=2",
                            "batch=4", "size=16", "rounds=1", "steps=1", "classes=11", "--json", "-"}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto cases = nlohmann::json::parse(ended.out)["cases"];
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[0]["mode"], "threads");
  EXPECT_EQ(cases[1]["mode"], "processes");
  for (const auto& one : cases) {
    for (const auto* key : {"seconds", "simulated_seconds", "bubble", "peer_seconds", "peer_simulated_seconds",
                            "speedup", "peak_bytes"}) {
      EXPECT_GT(one[key], 0) << key << one;
    }
    EXPECT_EQ(one["schedule"], "interleaved");
    EXPECT_EQ(one["micro_batches"], 2);
    constexpr int64_t kTokens = 2 * 5 * 192 * 4;  // bytes of a message
    EXPECT_GE(one["wire_bytes"], 3 * 2 * 2 * kTokens) << "three cuts, two micro-batches, out and back";
  }
}

TEST(PipelineBench, RunsEveryScheduleWithDelays) {
  const auto ended = test::run_here(
      {"bench", "pipeline", "modes=delays", "delayed_ranks=2", "micro_batches=4", "batch=4", "unit=1", "--json", "-"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto cases = nlohmann::json::parse(ended.out)["cases"];
  ASSERT_EQ(cases.size(), 10u);
  for (const auto& one : cases) {
    EXPECT_GE(one["seconds"], one["simulated_seconds"]) << one;
    EXPECT_TRUE(one["peer_seconds"].is_null());
  }
}

}  // namespace
}  // namespace tandem::cli
