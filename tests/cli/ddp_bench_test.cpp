#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/run_command.h"
#include "tests/support/python.h"

// tandem bench ddp and tandem bench step.
namespace tandem::cli {
namespace {

TEST(StepBench, AnswersEachLineWithSecondsUntilItsInputEnds) {
  const auto command = test::tandem_command(
      {"bench", "step", "data=synthetic", "model=mlp", "head.classes=11", "train.batch=7", "data.size=8", "ranks=3"});
  std::string line;
  for (const auto& word : command) line += "'" + word + "' ";
  const auto ended = test::run_command({"sh", "-c", "printf '2\\n1\\n' | " + line});
  ASSERT_EQ(ended.status, 0) << ended.err;
  std::istringstream lines(ended.out);
  std::string first, second, third, more;
  ASSERT_TRUE(std::getline(lines, first) && std::getline(lines, second) && std::getline(lines, third)) << ended.out;
  EXPECT_FALSE(std::getline(lines, more)) << more;
  const auto facts = nlohmann::json::parse(first);
  EXPECT_EQ(facts["ranks"], 3);
  EXPECT_GT(facts["peak_bytes"], 0);
  EXPECT_GT(facts["wire_bytes"], 0);
  double one = 0, two = 0;
  EXPECT_EQ(std::sscanf(second.c_str(), "%lf %lf", &one, &two), 2) << second;
  EXPECT_EQ(std::sscanf(third.c_str(), "%lf %lf", &one, &two), 1) << third;
}

TEST(StepBench, AWordThatIsNoNumberEndsIt) {
  const auto command = test::tandem_command({"bench", "step", "data=synthetic", "model=mlp", "head.classes=11"});
  std::string line;
  for (const auto& word : command) line += "'" + word + "' ";
  const auto ended = test::run_command({"sh", "-c", "echo many | " + line});
  EXPECT_EQ(ended.status, 64);
  EXPECT_EQ(ended.err, "error: the input is 'many', wanted a number of steps\n");
}

nlohmann::json cases_of(const std::string& name) {
  const auto ended = test::run_command(test::tandem_command(
      {"bench", "ddp", "models=resnet_glyph", "batch=4", "rounds=1", "steps=1", "names=" + name, "--json", "-"}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  return ended.status == 0 ? nlohmann::json::parse(ended.out)["cases"] : nlohmann::json::array();
}

TEST(DdpBench, UnknownNamesAreRefused) {
  const auto ended = test::run_here({"bench", "ddp", "models=vgg"});
  EXPECT_EQ(ended.status, 78);
  EXPECT_EQ(ended.err, "error: models names 'vgg', wanted resnet18 or resnet_glyph\n");
}

TEST(DdpBench, MeasuresOursAsThreadsAndAsProcessesBesideThePeer) {
  if (!test::python_has_torch()) GTEST_SKIP() << test::python() << " has no torch";
  const auto cases = cases_of("ddp");
  ASSERT_EQ(cases.size(), 2u);
  for (const auto& one : cases) {
    EXPECT_EQ(one["name"], "ddp");
    EXPECT_EQ(one["model"], "resnet_glyph");
    EXPECT_EQ(one["ranks"], 2);
    for (const auto* key :
         {"seconds", "peer_seconds", "speedup", "one_rank_seconds", "one_rank_ratio", "peak_bytes", "wire_bytes"}) {
      EXPECT_GT(one[key], 0) << key << one;
    }
  }
  EXPECT_EQ(cases[0]["mode"], "threads");
  EXPECT_EQ(cases[1]["mode"], "processes");
  EXPECT_EQ(cases[0]["wire_bytes"], cases[1]["wire_bytes"]);
}

TEST(DdpBench, MeasuresReplicasInOneProcessBesideAPlainModule) {
  if (!test::python_has_torch()) GTEST_SKIP() << test::python() << " has no torch";
  const auto cases = cases_of("dp");
  ASSERT_EQ(cases.size(), 1u);  // one process: there is no other mode
  const auto& one = cases[0];
  EXPECT_EQ(one["mode"], "threads");
  EXPECT_GT(one["speedup"], 0);
  EXPECT_EQ(one["wire_bytes"], 0);
}

}  // namespace
}  // namespace tandem::cli
