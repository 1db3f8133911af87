#include <gtest/gtest.h>

#include <limits>

#include "tandem/base/error.h"
#include "tandem/job/ranks.h"
#include "tandem/job/step_memory.h"
#include "tandem/memory/meter.h"
#include "tests/job/job_of.h"
#include "tests/support/text_of.h"

// Steps that are run within each of many budgets. tools/recomputed_steps does the same with larger models.
namespace tandem::job {
namespace {

constexpr auto kActivations = static_cast<size_t>(Category::activations);
const DataShape kShape{50, {3, 32, 32}};

struct Case {
  const char* model;
  int64_t batch, budgets;
};

/// Of each rank.
std::vector<StepMemory> measured(const Words& words, const DataShape& shape) {
  memory::install_meter();
  const auto job = job_of(with({"threads=1", "data=synthetic"}, words));
  std::vector<StepMemory> ranks(static_cast<size_t>(job.parallel.ranks));
  on_ranks(job, [&](comm::ProcessGroup& group) {
    ranks[static_cast<size_t>(group.rank())] = measure_step(job, shape, group);
  });
  return ranks;
}

StepMemory measured(const Case& of, const Words& words) {
  const Words job = {"model=" + std::string(of.model), "embedding=16", "train.batch=" + std::to_string(of.batch),
                     "model.dropout=0.3", "head.classes=50"};
  return measured(with(job, words), kShape)[0];
}

StepMemory within(const Case& of, int64_t budget) {
  return measured(of, {"recompute=optimal", "memory.budget=" + std::to_string(budget)});
}

std::string refusal(const Case& of, int64_t budget) {
  return test::text_of<SettingsError>([&] { within(of, budget); });
}

/// The bytes that a refusal names.
int64_t least_of(const std::string& text) {
  const std::string words = "wanted at least ";
  EXPECT_NE(text.find(words), std::string::npos) << text;
  int64_t bytes = 0;
  for (size_t i = text.find(words) + words.size(); text.substr(i, 2) != ", "; ++i) {
    if (text[i] != ',') bytes = 10 * bytes + (text[i] - '0');
  }
  return bytes;
}

class RecomputeSweep : public testing::TestWithParam<Case> {};

TEST_P(RecomputeSweep, EveryBudgetHoldsToTheByteAndMoreBytesAreNeverSlower) {
  const auto of = GetParam();
  const auto least = least_of(refusal(of, 1)), most = measured(of, {}).timeline.highest[kActivations];
  ASSERT_LT(least, most);
  double slowdown = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < of.budgets; ++i) {
    const auto budget = least + (most - least) * i / (of.budgets - 1);
    const auto step = within(of, budget);
    SCOPED_TRACE(std::to_string(budget) + ": " + to_text(step.recomputation.plan));
    EXPECT_LE(step.timeline.highest[kActivations], budget);
    EXPECT_EQ(step.timeline.highest[kActivations], step.predicted.highest[kActivations]);
    EXPECT_EQ(total_of(step.at_peak), step.predicted.account.peak_bytes());
    EXPECT_LE(step.recomputation.slowdown, slowdown);
    slowdown = step.recomputation.slowdown;
  }
  EXPECT_EQ(slowdown, 1) << "what nothing recomputed takes is enough for it";
  EXPECT_NE(refusal(of, least - 1).find(" of block '"), std::string::npos) << refusal(of, least - 1);
}

INSTANTIATE_TEST_SUITE_P(Models, RecomputeSweep, testing::Values(Case{"resnet_glyph", 6, 20}, Case{"resnet18", 3, 5}),
                         [](const auto& info) { return std::string(info.param.model); });

/// With gradients of an earlier micro-batch, which are no activations, and micro-batches of several sizes.
TEST(RecomputeSweep, UnderEachStrategyTheLeastBudgetHoldsAndOneByteLessIsRefused) {
  const DataShape shape{13, {1, 12, 12}};
  const Words common = {"model=resnet_glyph", "model.norm=group", "embedding=8",
                        "train.accumulate=2", "train.batch=9",    "head.classes=13"};
  for (const Words& strategy : std::vector<Words>{{"parallel=ddp"},
                                                  {"parallel=zero1"},
                                                  {"parallel=zero2"},
                                                  {"parallel=fsdp"},
                                                  {"parallel=dp"},
                                                  {"parallel=ps"},
                                                  {"parallel=ps", "ps.update=server"},
                                                  {"parallel=local-sgd"},
                                                  {"parallel=diloco"}}) {
    for (const std::string more : {"ranks=1", "ranks=3"}) {
      for (const std::string method : {"optimal", "lossy"}) {
        const auto words = with(with(common, strategy), {more, "recompute=" + method});
        SCOPED_TRACE(testing::PrintToString(words));
        const auto within = [&](int64_t budget) {
          return measured(with(words, {"memory.budget=" + std::to_string(budget)}), shape);
        };
        const auto least = least_of(test::text_of<SettingsError>([&] { within(1); }));
        for (const auto& rank : within(least)) {
          EXPECT_LE(rank.timeline.highest[kActivations], least);
          EXPECT_LE(total_of(rank.at_peak), rank.predicted.account.peak_bytes());
        }
        EXPECT_THROW(within(least - 1), SettingsError);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::job
