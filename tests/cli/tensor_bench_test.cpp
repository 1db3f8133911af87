#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"
#include "tests/support/python.h"

// tandem bench tensor.
namespace tandem::cli {
namespace {

TEST(TensorBench, HeadsThatTheRanksDoNotDivideAreRefused) {
  const auto ended = test::run_here({"bench", "tensor", "heads=3"});
  EXPECT_EQ(ended.status, 78);
  EXPECT_EQ(ended.err, "error: heads is 3 with ranks 2, wanted a multiple of them\n");
}

TEST(TensorBench, MeasuresOursAsThreadsAndAsProcessesBesideThePeer) {
  if (!test::python_has_torch()) GTEST_SKIP() << test::python() << " has no torch";
  const auto ended = test::run_command(test::tandem_command(
      {"bench", "tensor", "batches=2", "size=16", "rounds=1", "steps=1", "classes=11", "--json", "-"}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto cases = nlohmann::json::parse(ended.out)["cases"];
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[0]["mode"], "threads");
  EXPECT_EQ(cases[1]["mode"], "processes");
  for (const auto& one : cases) {
    for (const auto* key :
         {"seconds", "compute_seconds", "peer_seconds", "peer_compute_seconds", "speedup", "peak_bytes"}) {
      EXPECT_GT(one[key], 0) << key << one;
    }
    constexpr int64_t kTokens = 2 * 5 * 192 * 4;  // bytes
    EXPECT_EQ(one["wire_bytes"], 2 * 12 * 4 * kTokens) << "two ranks, 12 blocks, four all_reduces, half out and back";
  }
}

}  // namespace
}  // namespace tandem::cli
