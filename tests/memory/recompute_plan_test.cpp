#include "tandem/memory/recompute_plan.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <random>

#include "tandem/base/error.h"
#include "tests/memory/random_stages.h"
#include "tests/support/text_of.h"

namespace tandem::memory {
namespace {

constexpr auto kPass = PlanStep::What::pass, kKeep = PlanStep::What::keep, kBackward = PlanStep::What::backward;

std::string failure(const std::function<void()>& call) { return test::text_of<c10::ValueError>(call); }

/// Blocks with outputs of 10, 20, 30... bytes that keep 1, 2, 3... bytes.
std::vector<Stage> small(int count) {
  std::vector<Stage> stages;
  for (int i = 0; i < count; ++i) {
    const Keep keep{.bytes = i + 1, .forward_extra = 5, .backward_extra = 7, .forward = 3e-9, .backward = 4e-9};
    stages.push_back({.name = "b" + std::to_string(i), .output = 10 * (i + 1), .forward_extra = 4, .forward = 2e-9});
    stages.back().keeps = {keep};
  }
  return stages;
}

TEST(RecomputePlan, HasAText) {
  for (const std::string text :
       {"0", "0-2", "0 1:bf16 2", "0-1:int8 2", "(0) 1", "0-2 (3-4 (5-8)) 9:9", "(((0) 1) 2) 3"}) {
    EXPECT_EQ(to_text(parse_plan(text)), text);
  }
  EXPECT_EQ(parse_plan("0 (1-2)"),
            (RecomputePlan{{.first = 0, .last = 0},
                           {.first = 1, .last = 2, .inner = {{.first = 1, .last = 1}, {.first = 2, .last = 2}}}}));
  EXPECT_EQ(to_text(parse_plan("0 1 2")), "0-2");
  EXPECT_EQ(to_text({}), "");
}

TEST(RecomputePlan, OfBlocksIsAlsoOneOfTheirParts) {
  auto stages = small(3);
  stages[1].parts = 4;
  EXPECT_EQ(to_text(in_parts(parse_plan("0-2"), stages)), "0-5");
  EXPECT_EQ(to_text(in_parts(parse_plan("0 1:1 2"), stages)), "0 1-4:bf16 5");
  EXPECT_EQ(to_text(in_parts(parse_plan("(0 (1)) 2"), stages)), "(0 (1-4)) 5");
}

TEST(RecomputePlan, AReplayEndsWhenAllIsSaved) {
  auto stages = small(3);
  for (auto& stage : stages) stage.keeps[0].output = false, stage.keeps[0].spared = 1e-9;
  const auto seconds = [&](const char* plan) { return cost_of(parse_plan(plan), stages).nanoseconds; };
  EXPECT_EQ(seconds("0-2"), 3 * (3 + 4));
  EXPECT_EQ(seconds("(0) 1-2"), 2 + 3 * (3 + 4) - 1);
  EXPECT_EQ(seconds("(0-1) 2"), 2 * 2 + 3 * (3 + 4) - 1);
  EXPECT_EQ(seconds("((0) 1) 2"), 2 * 2 + 2 + 3 * (3 + 4) - 2);
}

TEST(RecomputePlan, RefusesOtherTexts) {
  const std::string example = ", as in \"0-2 (3 (4-5)) 6:bf16\"";
  EXPECT_EQ(failure([] { parse_plan(""); }), "plan[0] is '', wanted a number" + example);
  EXPECT_EQ(failure([] { parse_plan("0 (1"); }), "plan[4] is '', wanted ')'" + example);
  EXPECT_EQ(failure([] { parse_plan("0)"); }), "plan[1] is ')', wanted the end" + example);
  EXPECT_EQ(failure([] { parse_plan("3-1"); }), "plan[3] is '', wanted ascending blocks" + example);
  EXPECT_EQ(failure([] { parse_plan("0 1 (x)"); }), "plan[5] is 'x)', wanted a number" + example);
  EXPECT_EQ(failure([] { parse_plan("99999999"); }), "plan[6] is '99', wanted the end" + example);
}

TEST(RecomputePlan, MustCoverTheChain) {
  const auto stages = small(3);
  const auto text = [&](const char* plan) { return failure([&] { cost_of(parse_plan(plan), stages); }); };
  EXPECT_EQ(text("0 2"), "plan: a part covers blocks 2 to 2, wanted them from 1 on, up to 2");
  EXPECT_EQ(text("0 (1-3)"), "plan: a part covers blocks 1 to 3, wanted them from 1 on, up to 2");
  EXPECT_EQ(text("0-1"), "plan: blocks end with 1, wanted 2");
  EXPECT_EQ(text("0-1 2:1"), "plan: keep of block 2 is 1, wanted 0 to 0");
  EXPECT_EQ(failure([&] { cost_of({{.first = 0, .last = 2}}, stages); }),
            "plan: blocks 0 to 2 have no inner plan, wanted one");
  EXPECT_EQ(failure([] { cost_of({}, {}); }), "chain: it has no blocks, wanted at least one");
}

TEST(RecomputePlan, SimpleOnes) {
  const std::vector<Stage> equal(9, small(1)[0]);
  EXPECT_EQ(to_text(plan_none(equal)), "0-8");
  EXPECT_EQ(to_text(plan_sqrt(equal)), "(0-2) (3-5) 6-8");
  auto heavy = equal;
  heavy[1].output = 100;
  EXPECT_EQ(to_text(plan_sqrt(heavy)), "(0-1) (2-3) 4-8");
  EXPECT_EQ(to_text(plan_log({8, equal[0]})), "(((0) 1) (2) 3) ((4) 5) (6) 7");
  EXPECT_EQ(cost_of(plan_log({8, equal[0]}), {8, equal[0]}).forwards, 20);
  for (int count = 1; count <= 30; ++count) {
    const auto stages = small(count);
    for (const auto& plan : {plan_none(stages), plan_sqrt(stages), plan_log(stages)}) {
      EXPECT_GE(cost_of(plan, stages).forwards, count);
    }
  }
}

TEST(RecomputePlan, IsExecutedStepByStep) {
  const auto stages = small(3);
  const auto plan = parse_plan("0 (1) 2");
  EXPECT_EQ(steps_of(plan, stages), (std::vector<PlanStep>{
                                        {kKeep, 0, 10 + 1 + 5, 11},
                                        {kPass, 1, 11 + 20 + 4, 31},
                                        {kKeep, 2, 31 + 30 + 3 + 5, 64},
                                        {kBackward, 2, 64 + 30 + 7, 10 + 1 + 20},
                                        {kKeep, 1, 31 + 20 + 2 + 5, 53},
                                        {kBackward, 1, 53 + 7, 10 + 1 + 10},
                                        {kBackward, 0, 21 + 7, 0},
                                    }));
  const auto cost = cost_of(plan, stages);
  EXPECT_EQ(cost.peak, 101);
  EXPECT_EQ(cost.at_peak.stage, 2);
  EXPECT_EQ(cost.nanoseconds, 3 * 7 + 2);
  EXPECT_EQ(cost.forwards, 4);
}

TEST(RecomputePlan, RunsNestedSegmentsAgainAndAgain) {
  std::string text;
  for (const auto& [what, stage, peak, live] : steps_of(parse_plan("0 (1-2 (3-4)) 5"), small(6))) {
    text += what == kBackward ? " b" : " ";
    text += std::to_string(stage) + (what == kKeep ? "*" : "");
  }
  EXPECT_EQ(text, " 0* 1 2 3 4 5* b5 1* 2* 3 4 3* 4* b4 b3 b2 b1 b0");
}

TEST(RecomputePlan, CountsAShortcutOnceAndItsGradientToo) {
  std::vector<Stage> stages = {{.output = 10}, {.output = 20, .shortcuts = {{0, 10}}}, {.output = 30, .gradients = 5}};
  EXPECT_EQ(steps_of(plan_none(stages), stages), (std::vector<PlanStep>{
                                                     {kKeep, 0, 10, 10},
                                                     {kKeep, 1, 30, 30},
                                                     {kKeep, 2, 60, 60},
                                                     {kBackward, 2, 60 + 30, 30 + 30 + 5},
                                                     {kBackward, 1, 65, 10 + 10 + 5},
                                                     {kBackward, 0, 25, 5},
                                                 }));
}

TEST(RecomputePlan, AWayToKeepCanDoWithoutInputAndOutput) {
  std::vector<Stage> stages = {{.output = 10}, {.output = 20}, {.output = 30}};
  for (auto& stage : stages) stage.keeps = {{.name = "offload", .input = false, .output = false, .backward_extra = 50}};
  EXPECT_EQ(steps_of(plan_none(stages), stages), (std::vector<PlanStep>{
                                                     {kKeep, 0, 10, 10},
                                                     {kKeep, 1, 30, 20},
                                                     {kKeep, 2, 50, 30},
                                                     {kBackward, 2, 80, 20},
                                                     {kBackward, 1, 70, 10},
                                                     {kBackward, 0, 60, 0},
                                                 }));
}

}  // namespace
}  // namespace tandem::memory
