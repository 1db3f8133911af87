#include "tandem/job/recomputation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <limits>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/comm/world.h"
#include "tandem/job/rank_memory.h"
#include "tandem/memory/meter.h"
#include "tests/job/job_of.h"
#include "tests/support/text_of.h"

namespace tandem::job {
namespace {

constexpr auto kActivations = static_cast<size_t>(Category::activations);
const DataShape kShape{50, {1, 32, 32}};

Job job_with(std::vector<std::string> words, int64_t batch = 6) {
  memory::install_meter();
  at::set_num_threads(1);  // as the ranks of a job do
  words.insert(words.end(),
               {"model=resnet_glyph", "embedding=16", "train.batch=" + std::to_string(batch), "threads=1"});
  return job_of(words);
}

Job within(int64_t budget, int64_t batch = 6) {
  return job_with({"recompute=optimal", "memory.budget=" + std::to_string(budget)}, batch);
}

int64_t highest(const Job& job) {
  const auto plan = choose_recomputation(job, kShape, {kShape.classes});
  return rehearse_rank(job, kShape, 0, {{kShape.classes}, plan.plan}, {8}).step.highest[kActivations];
}

int64_t least_budget(int64_t batch = 6) {
  const auto text =
      test::text_of<SettingsError>([&] { choose_recomputation(within(1, batch), kShape, {kShape.classes}); });
  const std::string words = "memory.budget is 1 bytes, wanted at least ";
  EXPECT_TRUE(text.starts_with(words)) << text;
  EXPECT_NE(text.find(" needs: raise it, or lower train.batch"), std::string::npos) << text;
  int64_t bytes = 0;
  for (const char digit : text.substr(words.size(), text.find(", which the ") - words.size())) {
    if (digit != ',') bytes = 10 * bytes + (digit - '0');
  }
  return bytes;
}

TEST(Recomputation, NothingIsRecomputedWithoutASetting) {
  EXPECT_TRUE(choose_recomputation(job_with({}), kShape, {kShape.classes}).plan.empty());
}

TEST(Recomputation, KeepsEachOfManyBudgets) {
  const auto most = highest(job_with({})), least = least_budget();
  EXPECT_LT(least, most);
  double slowdown = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i <= 20; ++i) {
    const auto budget = least + (most - least) * i / 20;
    EXPECT_LE(highest(within(budget)), budget) << i;
    const auto own = choose_recomputation(within(budget), kShape, {kShape.classes}).slowdown;
    EXPECT_LE(own, slowdown) << i;
    slowdown = own;
  }
}

/// The chosen plan has been rehearsed, and need not be again but for a test.
TEST(Recomputation, TellsTheStepOfItsPlan) {
  const auto budget = (least_budget() + highest(job_with({}))) / 2;
  const auto job = within(budget);
  const auto chosen = choose_recomputation(job, kShape, {kShape.classes}, 8);
  const TaskPlan plan = {{kShape.classes}, chosen.plan};
  const auto anew = rehearse_rank(job, kShape, 0, plan, {8, 30}),
             reused = rehearse_rank(job, kShape, 0, plan, {8, 30}, chosen.step);
  ASSERT_TRUE(chosen.step);
  EXPECT_EQ(chosen.step->account.at_peak, anew.step.account.at_peak);
  EXPECT_EQ(reused.step.account.at_peak, anew.step.account.at_peak);
  EXPECT_EQ(reused.test, anew.test);
  EXPECT_FALSE(choose_recomputation(job_with({"recompute=sqrt"}), kShape, {kShape.classes}).step);
}

TEST(Recomputation, TheLeastBudgetHoldsAndOneByteLessIsRefused) {
  const auto least = least_budget();
  EXPECT_EQ(highest(within(least)), least);
  const auto text =
      test::text_of<SettingsError>([&] { choose_recomputation(within(least - 1), kShape, {kShape.classes}); });
  EXPECT_NE(text.find("wanted at least " + format_count(least) + ", which the "), std::string::npos) << text;
  EXPECT_NE(text.find(" of block '"), std::string::npos) << text;
}

Job lossy_within(int64_t budget, int64_t batch = 6) {
  return job_with({"recompute=lossy", "memory.budget=" + std::to_string(budget)}, batch);
}

TEST(Recomputation, LossyWaysKeepBudgetsBelowTheLeastOfPlainOnes) {
  constexpr int64_t kBatch = 32;  // the least of small batches is a convolution's own memory
  const auto budget = least_budget(kBatch) * 24 / 25;
  const auto plan = choose_recomputation(lossy_within(budget, kBatch), kShape, {kShape.classes}).plan;
  const auto memory = rehearse_rank(job_with({}, kBatch), kShape, 0, {{kShape.classes}, plan}, {8});
  EXPECT_LE(memory.step.highest[kActivations], budget);
  const auto text = to_text(plan);
  EXPECT_TRUE(text.find(":bf16") != std::string::npos || text.find(":int8") != std::string::npos) << text;
}

TEST(Recomputation, LossyPlansAreNoSlowerAndOthersHaveNoLossyBlock) {
  const auto most = highest(job_with({})), least = least_budget();
  for (int64_t i = 0; i <= 1; ++i) {
    const auto budget = least + (most - least) * i / 3;
    const auto exact = choose_recomputation(within(budget), kShape, {kShape.classes});
    EXPECT_EQ(to_text(exact.plan).find(':'), std::string::npos);
    EXPECT_LE(choose_recomputation(lossy_within(budget), kShape, {kShape.classes}).slowdown, exact.slowdown) << i;
  }
}

TEST(Recomputation, IsTheSameInEachRun) {
  const auto job = within(least_budget() * 3 / 2);
  const auto plan = to_text(choose_recomputation(job, kShape, {kShape.classes}).plan);
  for (int run = 0; run < 3; ++run) {
    EXPECT_EQ(to_text(choose_recomputation(job, kShape, {kShape.classes}).plan), plan);
  }
}

TEST(Recomputation, AllRanksHaveThePlanOfRankZero) {
  auto job = job_with({"recompute=log", "ranks=3"});
  std::array<std::string, 3> plans;
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    plans[static_cast<size_t>(group.rank())] = to_text(choose_recomputation(job, kShape, group).plan);
  });
  EXPECT_NE(plans[0].find('('), std::string::npos) << plans[0];
  EXPECT_EQ(plans[1], plans[0]);
  EXPECT_EQ(plans[2], plans[0]);
}

TEST(Recomputation, ABudgetThatAPlanDoesNotKeepIsRefused) {
  const auto job = job_with({"recompute=sqrt", "memory.budget=1M"});
  const auto plan = choose_recomputation(job, kShape, {kShape.classes});
  const auto text = test::text_of<SettingsError>([&] {
    rehearse_rank(job, kShape, 0, {{kShape.classes}, plan.plan}, {8});
  });
  EXPECT_TRUE(text.starts_with("memory.budget is 1,048,576 bytes, wanted at least ")) << text;
  EXPECT_TRUE(
      text.ends_with(", which rank 0 needs with recompute=sqrt: raise it, or give recompute=optimal, "
                     "which plans by it"))
      << text;
}

TEST(Recomputation, SettingsThatContradictAreRefused) {
  const auto fault = [](const std::vector<std::string>& words) {
    return test::text_of<SettingsError>([&] { check_training(job_of(words)); });
  };
  EXPECT_EQ(fault({"recompute=optimal"}),
            "recompute is optimal without memory.budget, wanted the bytes that activations may take: add "
            "memory.budget=600M, or the like");
  EXPECT_TRUE(fault({"recompute=lossy"}).starts_with("recompute is lossy without memory.budget, wanted "));
  EXPECT_EQ(fault({"memory.budget=1G"}),
            "recompute is none with memory.budget, wanted a way to keep it: add recompute=optimal");
  EXPECT_EQ(fault({"memory.budget=0", "recompute=optimal"}), "memory.budget is 0, wanted 1 byte or more");
}

}  // namespace
}  // namespace tandem::job
