#include "tandem/cli/run/history.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/files.h"

namespace tandem::cli {
namespace {

using test::spill;
using test::TemporaryFolder;

std::string step(int number, const std::string& loss) {
  return R"({"event":"step","ts":1.5,"step":)" + std::to_string(number) + R"(,"loss":)" + loss + R"(,"lr":0.5})" + "\n";
}

std::string event(const std::string& name, int number) {
  return R"({"event":")" + name + R"(","step":)" + std::to_string(number) + R"(,"top1":0.25})" + "\n";
}

TEST(RunHistory, EndsAtTheStepThatIsGoneOnFrom) {
  const TemporaryFolder folder;
  spill(folder / "log.jsonl", step(1, "4") + step(5, "3") + event("test", 5) + event("checkpoint", 5) + step(9, "2"));
  const auto history = read_history(folder / "log.jsonl", 8);
  EXPECT_EQ(history.curves.losses, (Curve{{1, 4}, {5, 3}}));
  EXPECT_EQ(history.curves.rates, (Curve{{1, 0.5}, {5, 0.5}}));
  EXPECT_EQ(history.curves.top1, (Curve{{5, 0.25}}));
  ASSERT_EQ(history.lines.size(), 4U);
  EXPECT_EQ(history.lines[0] + "\n", step(1, "4"));
}

TEST(RunHistory, StepsDoneAgainCountOnce) {
  const TemporaryFolder folder;
  spill(folder / "log.jsonl", step(1, "4") + step(5, "3") + step(9, "8") + event("resume", 5) + step(8, "2"));
  EXPECT_EQ(read_history(folder / "log.jsonl", 99).curves.losses, (Curve{{1, 4}, {5, 3}, {8, 2}}));
  spill(folder / "silent.jsonl", step(1, "4") + step(5, "3") + step(9, "8") + step(5, "7") + step(10, "2"));
  EXPECT_EQ(read_history(folder / "silent.jsonl", 99).curves.losses, (Curve{{1, 4}, {5, 7}, {10, 2}}));
}

TEST(RunHistory, WhatIsNoRecordIsPassedOver) {
  const TemporaryFolder folder;
  spill(folder / "log.jsonl", step(1, "null") + "{\"st\n[1]\n\n{\"event\":7,\"step\":1}\n{\"event\":\"step\"}\n" +
                                  "{\"event\":\"step\",\"step\":2.5}\n" + step(3, "2") +
                                  "{\"event\":\"step\",\"step\":4");
  const auto losses = read_history(folder / "log.jsonl", 99).curves.losses;
  ASSERT_EQ(losses.size(), 2U);
  EXPECT_TRUE(std::isnan(losses[0].second));
  EXPECT_EQ(losses[1], (std::pair<double, double>(3, 2)));
  EXPECT_TRUE(read_history(folder / "none", 99).lines.empty());
}

}  // namespace
}  // namespace tandem::cli
