#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tandem/cli/bench/recompute.h"
#include "tests/cli/run_command.h"
#include "tests/support/files.h"
#include "tests/support/python.h"

// tandem bench recompute, and how its peer counts bytes.
namespace tandem::cli {
namespace {

TEST(RecomputeBench, ThePeersBytesAreThoseCountedByHand) {
  if (!test::python_has_torch()) GTEST_SKIP() << test::python() << " has no torch";
  const test::TemporaryFolder folder;
  const auto answer = test::run_python(folder, R"(
import os, sys
sys.path.insert(0, os.environ["TANDEM_SOURCE_DIR"] + "/bench/recompute")
import torch
from peers import allocations, highest
x, w = torch.ones(10, 100), torch.ones(100, 100, requires_grad=True)
older = [torch.ones(5000)]
def work():
    older.clear()
    y = x @ w
    z = y.relu()
    z.sum().backward()
events = allocations(work)
print(highest(events, {w.grad.untyped_storage().data_ptr()}), highest(events))
)");
  ASSERT_EQ(answer.status, 0) << answer.output;
  const int flow = 10 * 100 * 4, scalar = 4, weight = 100 * 100 * 4;
  const int activations = 3 * flow + 2 * scalar;  // y, z, the gradient of y; the sum and its gradient
  const auto wanted = std::to_string(activations) + " " + std::to_string(activations + weight) + "\n";
  EXPECT_TRUE(answer.output.ends_with(wanted)) << answer.output;  // warnings may stand before
}

TEST(RecomputeBench, AtItsTimeIsOursWithFewestBytesThatIsNotSlower) {
  RecomputeResult result;
  result.peer = {{.bytes = 100, .seconds = {2, 2, 2}}, {.segments = 2, .bytes = 60, .seconds = {3, 9, 3}}};
  result.own = {{.bytes = 110, .seconds = {1, 1, 1}},
                {.budget = 60, .bytes = 59, .seconds = {2, 3, 1.5}},  // ratios to the peer's 2 segments: 1.5, 3, 2
                {.budget = 50, .bytes = 50, .seconds = {3, 8, 3}},
                {.budget = 40, .bytes = 40, .seconds = {4, 9, 4}}};
  const auto cases = cases_of(result);
  ASSERT_EQ(cases.size(), 4u);  // nothing of ours has 100 bytes as its budget
  EXPECT_EQ(cases[0].own, &result.own[0]);
  EXPECT_EQ(cases[1].name, "at its bytes, 2 segments");
  EXPECT_EQ(cases[1].own, &result.own[1]);
  EXPECT_EQ(cases[1].speedup(), 2);
  EXPECT_EQ(cases[2].name, "at its time, nothing recomputed");
  EXPECT_EQ(cases[2].own, &result.own[1]);
  EXPECT_EQ(cases[3].name, "at its time, 2 segments");
  EXPECT_EQ(cases[3].own, &result.own[2]);
  EXPECT_DOUBLE_EQ(cases[3].bytes_ratio(), 50.0 / 60);
}

TEST(RecomputeBench, MoreSegmentsThanModulesAreRefused) {
  const auto ended = test::run_here({"bench", "recompute", "model=resnet18", "segments=2,12"});
  EXPECT_EQ(ended.status, 78);
  EXPECT_EQ(ended.err, "error: segments has 12, wanted at most the 10 modules of resnet18\n");
}

TEST(RecomputeBench, HoldsOursToTheBytesOfThePeer) {
  if (!test::python_has_torch()) GTEST_SKIP() << test::python() << " has no torch";
  const auto ended = test::run_tandem({"bench", "recompute", "model=resnet18", "batch=8", "size=64", "segments=2",
                                       "budgets=2", "rounds=1", "--json", "-"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto result = nlohmann::json::parse(ended.out);
  std::map<std::string, nlohmann::json> cases;
  for (const auto& one : result["cases"]) {
    cases[one["name"]] = one;
    EXPECT_GT(one["speedup"], 0) << one;
    if (one["name"].get<std::string>().starts_with("at its bytes")) {
      EXPECT_LE(one["bytes"], one["peer_bytes"]) << one;
    }
  }
  const auto& none = cases.at("nothing recomputed by either");
  EXPECT_NEAR(none["bytes_ratio"], 1, 0.05) << "the two sides count the same things";
  EXPECT_EQ(none["plan"], "");
  const auto& two = cases.at("at its bytes, 2 segments");
  EXPECT_EQ(two["segments"], 2);
  EXPECT_LT(two["peer_bytes"], none["peer_bytes"]);
  EXPECT_NE(two["plan"].get<std::string>().find('('), std::string::npos) << two;
  EXPECT_EQ(result["peer"].size(), 2u);
  EXPECT_EQ(result["own"].size(), 5u);
  EXPECT_GT(result["planning_seconds"], 0);
  EXPECT_GT(result["rehearsal_seconds"], result["planning_seconds"]);
}

}  // namespace
}  // namespace tandem::cli
