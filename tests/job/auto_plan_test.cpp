#include "tandem/job/auto_plan.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tandem/job/parts.h"
#include "tandem/memory/meter.h"
#include "tests/job/job_of.h"
#include "tests/job/step_peaks.h"
#include "tests/support/text_of.h"

// Plans that are searched for.
namespace tandem::job {
namespace {

constexpr DataShape kShape{.classes = 7, .image = {1, 16, 16}};

Words auto_job(int ranks) {
  return {"model=resnet_glyph", "parallel=auto", "ranks=" + std::to_string(ranks),
          "train.batch=32",     "threads=1",     "eval.batch=8"};  // so that no test is the peak
}

SharedPlans plans_of(const Words& words, std::optional<int64_t> limit = {}) {
  memory::install_meter();
  PlanEstimate estimates(kShape);
  return search_plans(job_of(words), estimates, {.limit = limit});
}

int64_t most_measured(const Words& words) {
  int64_t most = 0;
  for (const auto& rank : peaks_of(words)) most = std::max(most, rank.measured);
  return most;
}

TEST(AutoPlan, TheFrontRisesInTimeAndFallsInBytes) {
  const auto plans = plans_of(auto_job(4));
  ASSERT_GE(plans.front.size(), 2);
  EXPECT_GT(plans.lower_bound, 0);
  for (size_t i = 0; i < plans.front.size(); ++i) {
    EXPECT_TRUE(plans.front[i].is_rehearsed);
    EXPECT_GE(plans.front[i].seconds, plans.lower_bound);
    if (i == 0) continue;
    EXPECT_GE(plans.front[i].seconds, plans.front[i - 1].seconds);
    EXPECT_LT(plans.front[i].peak_bytes, plans.front[i - 1].peak_bytes);
  }
  EXPECT_EQ(plans.fitting.front().words, plans.front.front().words) << "without a limit the fastest";
}

/// Between any two points of the front the one with fewer bytes is what fits.
TEST(AutoPlan, ChoosesTheFastestThatFits) {
  const auto words = auto_job(4);
  const auto all = plans_of(words);
  for (size_t i = 1; i < all.front.size(); ++i) {
    const int64_t limit = all.front[i].peak_bytes;
    const auto plans = plans_of(words, limit);
    ASSERT_TRUE(!plans.fitting.empty());
    EXPECT_LE(plans.fitting.front().peak_bytes, limit);
    EXPECT_LE(plans.fitting.front().seconds, all.front[i].seconds);
  }
}

TEST(AutoPlan, ChosenPlansRunWithinTheirBytes) {
  for (const int ranks : {2, 4}) {
    const auto words = auto_job(ranks);
    for (const auto& plan : plans_of(words).front) {
      auto own = words;
      own.insert(own.end(), plan.words.begin(), plan.words.end());
      EXPECT_LE(most_measured(own), plan.peak_bytes) << plan.text();  // which has batches that are read ahead, too
    }
  }
}

TEST(AutoPlan, WhatIsGivenStays) {
  auto words = auto_job(4);
  words.insert(words.end(), {"mesh.pipeline=2", "train.accumulate=4", "pipeline.schedule=zb-h1", "recompute=none"});
  for (const auto& plan : plans_of(words).front) {
    const auto job = with_plan(job_of(words), plan.words);
    EXPECT_EQ(job.parallel.pipeline, 2);
    EXPECT_EQ(plan.micro_batches, 4);
    EXPECT_EQ(plan.schedule, "zb-h1");
    EXPECT_EQ(plan.recompute, "none");
  }
}

TEST(AutoPlan, AllRanksTakeThePlanOfTheFirst) {
  memory::install_meter();
  std::vector<std::string> plans(4);
  comm::run_ranks(4, [&](comm::ProcessGroup& group) {
    auto job = job_of(auto_job(4));
    const auto plan = settle_plan(job, kShape, group);
    ASSERT_TRUE(plan);
    EXPECT_FALSE(is_auto(job));
    EXPECT_FALSE(settle_plan(job, kShape, group)) << "it is settled";
    plans[group.rank()] = job.settings.to_toml();
  });
  EXPECT_EQ(plans, std::vector<std::string>(4, plans[0]));
}

Words fitting_job() {
  return {"model=resnet_glyph", "parallel=pipeline", "ranks=2",      "train.accumulate=4",
          "train.batch=32",     "threads=1",         "eval.batch=8", "pipeline.schedule=fit"};
}

SharedPlan with_schedule(Words words, const std::string& schedule) {
  words.push_back("pipeline.schedule=" + schedule);
  return plans_of(words).fitting.front();
}

/// Within the bytes of any schedule, none that is slower than it.
TEST(AutoPlan, FitsAScheduleIntoALimit) {
  const auto words = fitting_job();
  for (const auto* name : {"gpipe", "1f1b", "zb-h1", "v-half", "v-min"}) {
    const auto given = with_schedule(words, name);
    const auto plans = plans_of(words, given.peak_bytes);
    ASSERT_FALSE(plans.fitting.empty()) << name;
    const auto& chosen = plans.fitting.front();
    EXPECT_LE(chosen.peak_bytes, given.peak_bytes) << name;
    EXPECT_LE(chosen.seconds, given.seconds) << name;
    EXPECT_EQ(chosen.mesh, "pipeline 2");
    EXPECT_EQ(chosen.micro_batches, 4);
    auto own = words;
    own.insert(own.end(), chosen.words.begin(), chosen.words.end());
    EXPECT_LE(most_measured(own), chosen.peak_bytes) << chosen.text();
  }
}

TEST(AutoPlan, OnlyAJobWithAPlanTrains) {
  for (const auto& words : {fitting_job(), auto_job(2)}) {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const auto text = test::text_of<SettingsError>([&] { assemble(job_of(words), kShape, group); });
      EXPECT_TRUE(text.ends_with(", wanted a plan: tandem plan with the same settings finds one")) << text;
    });
  }
}

TEST(AutoPlan, TellsWhatALimitLacks) {
  const auto plans = plans_of(auto_job(2), 100'000);
  EXPECT_TRUE(plans.fitting.empty());
  const auto& least = plans.front.back();
  const auto text = test::text_of<SettingsError>([&] { refuse_limit(job_of(auto_job(2)), plans, 100'000); });
  EXPECT_TRUE(text.starts_with("memory.limit is 100,000 bytes, wanted at least ")) << text;
  EXPECT_NE(text.find(least.text()), text.npos) << text;
  EXPECT_NE(text.find("on the ranks of stage " + std::to_string(least.worst) + ", in " + least.worst_block), text.npos)
      << text;
  EXPECT_EQ(test::text_of<SettingsError>([] {
              auto words = auto_job(2);
              words.emplace_back("memory.limit=1M,2M");
              limit_of(job_of(words));
            }),
            "memory.limit has several numbers and parallel is auto, wanted one for all ranks: give the smallest");
}

}  // namespace
}  // namespace tandem::job
