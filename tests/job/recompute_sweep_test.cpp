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

StepMemory measured(const Case& of, std::vector<std::string> words) {
  memory::install_meter();
  words.insert(words.end(),
               {"model=" + std::string(of.model), "embedding=16", "train.batch=" + std::to_string(of.batch),
                "threads=1", "model.dropout=0.3", "data=synthetic", "head.classes=50"});
  const auto job = job_of(words);
  StepMemory result;
  on_ranks(job, [&](comm::ProcessGroup& group) { result = measure_step(job, kShape, group); });
  return result;
}

StepMemory within(const Case& of, int64_t budget) {
  return measured(of, {"recompute=optimal", "memory.budget=" + std::to_string(budget)});
}

std::string refusal(const Case& of, int64_t budget) {
  return test::text_of<SettingsError>([&] { within(of, budget); });
}

int64_t least_of(const Case& of) {
  const std::string words = "wanted at least ";
  const auto text = refusal(of, 1);
  int64_t bytes = 0;
  for (size_t i = text.find(words) + words.size(); text.substr(i, 2) != ", "; ++i) {
    if (text[i] != ',') bytes = 10 * bytes + (text[i] - '0');
  }
  return bytes;
}

class RecomputeSweep : public testing::TestWithParam<Case> {};

TEST_P(RecomputeSweep, EveryBudgetHoldsToTheByteAndMoreBytesAreNeverSlower) {
  const auto of = GetParam();
  const auto least = least_of(of), most = measured(of, {}).timeline.highest[kActivations];
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

}  // namespace
}  // namespace tandem::job
