#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <random>

#include "tandem/base/error.h"
#include "tandem/memory/recompute_plan.h"
#include "tests/memory/random_stages.h"
#include "tests/support/text_of.h"

namespace tandem::memory {
namespace {

std::vector<Stage> long_chain() {
  std::mt19937 generator(7);
  return test::random_stages({.count = 40, .ways = 2, .shortcuts = true, .flags = true}, generator);
}

TEST(RecomputePlanner, KeepsEachBudgetAndIsNeverSlowerWithMore) {
  const auto stages = long_chain();
  const int64_t least = least_budget(stages).bytes, most = cost_of(plan_none(stages), stages).peak;
  const RecomputePlanner planner(stages);
  int64_t slowest = std::numeric_limits<int64_t>::max();
  ASSERT_GT(most, least + 20);
  for (int i = 0; i < 20; ++i) {
    const int64_t budget = least + (most - least) * i / 19;
    const auto cost = cost_of(plan_optimal(stages, budget), stages);
    EXPECT_LE(cost.peak, budget);
    EXPECT_LE(cost.nanoseconds, slowest);
    EXPECT_GE(cost.nanoseconds, least_nanoseconds(stages, budget));
    EXPECT_EQ(cost.nanoseconds, cost_of(planner.plan(budget), stages).nanoseconds);
    slowest = cost.nanoseconds;
  }
  EXPECT_LE(slowest, cost_of(plan_none(stages), stages).nanoseconds);
}

TEST(RecomputePlanner, IsAtLeastAsFastAsTheSimplePlansInTheirMemory) {
  const auto stages = long_chain();
  const RecomputePlanner planner(stages);
  for (const auto& plan : {plan_none(stages), plan_sqrt(stages), plan_log(stages)}) {
    const auto cost = cost_of(plan, stages);
    EXPECT_LE(cost_of(planner.plan(cost.peak), stages).nanoseconds, cost.nanoseconds);
    EXPECT_GE(cost.peak, planner.tradeoffs()[0].bytes);
  }
}

TEST(RecomputePlanner, EveryTradeoffIsExact) {
  const auto stages = long_chain();
  const RecomputePlanner planner(stages);
  ASSERT_GT(planner.tradeoffs().size(), 20u);
  for (const auto& [bytes, time] : planner.tradeoffs()) {
    const auto cost = cost_of(planner.plan(bytes), stages);
    EXPECT_EQ(cost.peak, bytes);
    EXPECT_EQ(cost.nanoseconds, time);
  }
}

TEST(RecomputePlanner, ARangeOfBudgetsGivesTheSamePlans) {
  const auto stages = long_chain();
  const RecomputePlanner all(stages);
  const int64_t from = all.tradeoffs()[3].bytes, to = all.tradeoffs()[12].bytes;
  const RecomputePlanner some(stages, from, to);
  EXPECT_EQ(some.tradeoffs(), std::vector(all.tradeoffs().begin() + 3, all.tradeoffs().begin() + 13));
  const auto range = ", wanted " + std::to_string(from) + " to " + std::to_string(to) + ", the range of the planner";
  EXPECT_EQ(test::text_of<c10::ValueError>([&] { some.plan(from - 1); }),
            "budget is " + std::to_string(from - 1) + " B" + range);
  EXPECT_EQ(test::text_of<c10::ValueError>([&] { some.plan(to + 1); }),
            "budget is " + std::to_string(to + 1) + " B" + range);
}

TEST(RecomputePlanner, RefusesLessThanTheLeastBudgetAndNamesTheBlock) {
  std::vector<Stage> stages(4, {.output = 1000});
  stages[2].name = "wide";
  stages[2].keeps[0].backward_extra = 2'000'000;
  const auto least = least_budget(stages);
  EXPECT_EQ(least.bytes, 1000 + 1000 + 1000 + 2'000'000);  // its input, output, gradient, and what backward takes
  EXPECT_EQ(least.at.stage, 2);
  EXPECT_EQ(least.at.what, PlanStep::What::backward);
  EXPECT_EQ(cost_of(plan_optimal(stages, least.bytes), stages).peak, least.bytes);
  const auto text = test::text_of<SettingsError>([&] { plan_optimal(stages, least.bytes - 1); });
  EXPECT_EQ(text,
            "memory budget of activations is 2,002,999 B, wanted at least 2,003,000 B (1.9 MiB), which the backward of "
            "block wide needs: raise the budget or lower the batch size");
}

TEST(RecomputePlanner, RefusesChainsThatCannotBe) {
  const auto text = [](const std::vector<Stage>& stages) {
    return test::text_of<c10::ValueError>([&] { least_budget(stages); });
  };
  EXPECT_EQ(text({}), "chain: it has no blocks, wanted at least one");
  EXPECT_EQ(text({{.name = "a", .output = -1}}), "chain[0]: block a has a negative cost, wanted none below 0");
  EXPECT_EQ(text({{.name = "a", .keeps = {{.forward = 2, .spared = 1}}}}),
            "chain[0]: block a spares a part of forward, wanted none where its output stays");
  EXPECT_EQ(text({{.name = "a", .keeps = {}}}), "chain[0]: block a has no way to keep, wanted one");
  EXPECT_EQ(text({{.name = "a", .output = 3}, {.name = "b", .shortcuts = {{0, 4}}}}),
            "chain[1]: block b passes on 4 B of block 0, wanted what the block before passes on");
  EXPECT_EQ(text({{.name = "a", .output = 3}, {.name = "b"}, {.name = "c", .shortcuts = {{0, 3}}}}),
            "chain[2]: block c passes on 3 B of block 0, wanted what the block before passes on");
}

TEST(RecomputePlanner, TheBoundOfTimeCountsWhatCannotBeKept) {
  std::vector<Stage> stages(3, {.output = 10, .forward = 6e-9, .keeps = {{.bytes = 20, .forward = 6e-9}}});
  EXPECT_EQ(least_nanoseconds(stages, 1000), 18);
  // The last block, its input and its gradient take 10 + 20 + 10 + 10; keeping the first takes 30, the second 20 more.
  EXPECT_EQ(least_nanoseconds(stages, 50 + 50), 18);
  EXPECT_EQ(least_nanoseconds(stages, 50 + 20), 18 + 6);
  EXPECT_EQ(least_nanoseconds(stages, 50), 18 + 12);
}

}  // namespace
}  // namespace tandem::memory
