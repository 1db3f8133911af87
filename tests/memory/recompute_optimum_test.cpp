#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "tandem/memory/recompute_plan.h"
#include "tests/memory/general_schedule.h"
#include "tests/memory/random_stages.h"

namespace tandem::memory {
namespace {

/// Every plan of the stages first..last, also such as gain nothing. A segment that only contains itself is left out.
std::vector<RecomputePlan> all_plans(const std::vector<Stage>& stages, int first, int last, bool inner = false) {
  if (first > last) return {{}};
  std::vector<RecomputePlan> plans;
  const auto begin_with = [&](const PlanNode& node) {
    for (const auto& rest : all_plans(stages, node.last + 1, last)) {
      plans.push_back({node});
      plans.back().insert(plans.back().end(), rest.begin(), rest.end());
    }
  };
  for (size_t keep = 0; keep < stages[first].keeps.size(); ++keep) {
    begin_with({.first = first, .last = first, .keep = static_cast<int>(keep)});
  }
  for (int end = first; end <= (inner ? last - 1 : last); ++end) {
    for (auto& nodes : all_plans(stages, first, end, true)) {
      begin_with({.first = first, .last = end, .inner = std::move(nodes)});
    }
  }
  return plans;
}

/// What is worth choosing among the plans, by executing each.
std::vector<Tradeoff> tradeoffs_of(const std::vector<RecomputePlan>& plans, const std::vector<Stage>& stages) {
  std::map<int64_t, int64_t> fastest;
  for (const auto& plan : plans) {
    const auto cost = cost_of(plan, stages);
    auto& time = fastest.try_emplace(cost.peak, cost.nanoseconds).first->second;
    time = std::min(time, cost.nanoseconds);
  }
  std::vector<Tradeoff> best;
  for (const auto& [bytes, time] : fastest) {
    if (best.empty() || time < best.back().nanoseconds) best.push_back({bytes, time});
  }
  return best;
}

void expect_planner_equals(const std::vector<Tradeoff>& expected, const std::vector<Stage>& stages) {
  const RecomputePlanner planner(stages);
  ASSERT_EQ(planner.tradeoffs(), expected);
  for (const auto& [bytes, time] : expected) {
    const auto cost = cost_of(planner.plan(bytes), stages);
    ASSERT_EQ(cost.peak, bytes);
    ASSERT_EQ(cost.nanoseconds, time);
    ASSERT_EQ(cost_of(plan_optimal(stages, bytes), stages).nanoseconds, time);
  }
  ASSERT_EQ(least_budget(stages).bytes, expected[0].bytes);
}

void compare(int chains, const test::RandomStages& options, unsigned seed) {
  std::mt19937 generator(seed);
  std::map<std::vector<size_t>, std::vector<RecomputePlan>> plans;  // by the numbers of ways to keep
  for (int i = 0; i < chains; ++i) {
    const auto stages = test::random_stages(options, generator);
    std::vector<size_t> ways;
    for (const auto& stage : stages) ways.push_back(stage.keeps.size());
    auto& all = plans[ways];
    if (all.empty()) all = all_plans(stages, 0, options.count - 1);
    SCOPED_TRACE(testing::Message() << options.count << " blocks, chain " << i);
    expect_planner_equals(tradeoffs_of(all, stages), stages);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(RecomputeOptimum, EnumeratesEachPlanOnce) {
  const std::vector<size_t> numbers = {2, 8, 48, 352, 2880};
  for (int count = 1; count <= 5; ++count) {
    const auto plans = all_plans(std::vector<Stage>(count), 0, count - 1);
    std::set<std::string> texts;
    for (const auto& plan : plans) texts.insert(to_text(plan));
    EXPECT_EQ(plans.size(), numbers[count - 1]);
    EXPECT_EQ(texts.size(), plans.size());
  }
}

TEST(RecomputeOptimum, EqualsTheBestOfAllPlans) {
  compare(500, {.count = 2}, 2);
  compare(500, {.count = 3}, 3);
  compare(400, {.count = 4}, 4);
  compare(100, {.count = 5}, 5);
}

TEST(RecomputeOptimum, EqualsTheBestOfAllPlansWithShortcutsAndWaysToKeep) {
  compare(100, {.count = 1, .ways = 3, .flags = true}, 11);
  compare(500, {.count = 2, .ways = 3, .flags = true}, 12);
  compare(500, {.count = 3, .ways = 2, .shortcuts = true, .flags = true}, 13);
  compare(300, {.count = 4, .shortcuts = true, .flags = true}, 14);
  compare(50, {.count = 4, .ways = 2, .shortcuts = true, .flags = true}, 15);
  compare(50, {.count = 5, .shortcuts = true, .flags = true}, 16);
  compare(500, {.count = 3, .ways = 2, .flags = true, .spares = true}, 17);
  compare(300, {.count = 4, .shortcuts = true, .flags = true, .spares = true}, 18);
  compare(50, {.count = 5, .shortcuts = true, .spares = true}, 19);
}

/// How far plans are from schedules of any kind.
struct Gaps {
  int budgets = 0, slower = 0;
  int chains = 0, above = 0;  // whose least budget is above that of schedules
  double largest = 1;

  void add(const std::vector<Stage>& stages) {
    const RecomputePlanner planner(stages);
    for (const auto& [bytes, time] : planner.tradeoffs()) {
      const auto general = test::GeneralSchedule(stages, bytes).fastest();
      ASSERT_TRUE(general.has_value());
      ASSERT_LE(*general, time);
      ASSERT_LE(least_nanoseconds(stages, bytes), *general);
      ++budgets;
      slower += *general < time ? 1 : 0;
      largest = std::max(largest, static_cast<double>(time) / static_cast<double>(std::max<int64_t>(*general, 1)));
    }
    ++chains;
    above += test::GeneralSchedule(stages, planner.tradeoffs()[0].bytes - 1).fastest().has_value() ? 1 : 0;
  }
};

/// In these chains, keeping takes no more at the peak of forward than running without keeping, and backward no less.
void keep_without_a_peak(std::vector<Stage>& stages) {
  for (auto& stage : stages) {
    for (auto& keep : stage.keeps) {
      stage.forward_extra = keep.forward_extra;
      keep.backward_extra = std::max(keep.backward_extra, keep.forward_extra);
    }
  }
}

Gaps gaps(const char* name, const test::RandomStages& options, unsigned seed, bool peaks = true) {
  Gaps gaps;
  std::mt19937 generator(seed);
  for (int count = 1; count <= 4; ++count) {
    auto sized = options;
    sized.count = count;
    for (int i = 0; i < 100; ++i) {
      auto stages = test::random_stages(sized, generator);
      if (!peaks) keep_without_a_peak(stages);
      gaps.add(stages);
    }
  }
  std::cout << name << ": of " << gaps.budgets << " budgets, a general schedule is faster in " << gaps.slower
            << ", at most " << gaps.largest << " times; of " << gaps.chains << " chains, it needs less in "
            << gaps.above << "\n";
  return gaps;
}

TEST(RecomputeOptimum, IsNeverBetterThanAGeneralScheduleAndFitsTheSameBudgets) {
  EXPECT_EQ(gaps("plain", {}, 21, false).above, 0);
}

TEST(RecomputeOptimum, IsNeverBetterThanAGeneralSchedule) {
  gaps("peaks of forward", {}, 22);
  gaps("shortcuts", {.shortcuts = true}, 23);
  gaps("ways to keep", {.ways = 2, .shortcuts = true, .flags = true}, 24);
  gaps("replays that end early", {.flags = true, .spares = true}, 25);
}

}  // namespace
}  // namespace tandem::memory
