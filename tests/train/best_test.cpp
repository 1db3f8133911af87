#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tandem/train/trainer.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"
#include "tests/train/small_task.h"

namespace tandem::train {
namespace {

/// Trains nothing; the test after step i has the i-th value.
class ScoredStep : public Step {
 public:
  explicit ScoredStep(std::vector<double> values) : values_(std::move(values)) {}

  std::vector<int64_t> skipped;  // steps, counted from 1
  int64_t steps() const { return step_; }

  void allow_skips(int64_t) override {}
  std::optional<Reading> run(const data::Batch&, int64_t step, double) override {
    step_ = step + 1;
    if (std::ranges::count(skipped, step_) > 0) return Reading{.skipped = NonFiniteError("a fault")};
    return Reading{.loss = 1};
  }
  std::vector<Parameter> weights() const override { return {}; }
  std::vector<Parameter> state() const override { return {Parameter::replicated("w", w_)}; }
  void set_numbers(const storage::Fields& numbers) override { step_ = storage::whole_number(numbers, "step"); }
  Scores evaluate(data::Loader&, const Tick&, const Answered&) override {
    const double value = values_.at(static_cast<size_t>(step_) - 1);
    return {{{"right", "right", value, ScoreUnit::fraction}, {"wrong", "wrong", value, {}, Better::lower}}, 16};
  }

 private:
  std::vector<double> values_;
  Tensor w_ = at::zeros({3});
  int64_t step_ = 0;
};

struct BestRecorder : Observer {
  std::vector<int64_t> steps;
  void on_best(const BestTest& best, const std::filesystem::path& path) override {
    steps.push_back(best.step);
    EXPECT_TRUE(std::filesystem::exists(path / storage::kManifestName));
  }
};

using Steps = std::vector<int64_t>;

struct BestOptions {
  std::string metric = "right";
  int64_t steps = 0;  // 0: one a value
  int64_t saves_every = 0;
  bool resumes = false;
  Steps skipped = {}, unwritten = {};  // the folder is not writable after these
};

struct BestOutcome {
  Steps best_so_far;  // the steps of tests that were
  std::optional<BestTest> best;
};

/// Tests after each step, and keeps one checkpoint. Collective.
BestOutcome train_for_best(const std::vector<double>& values, const BestOptions& options,
                           const std::filesystem::path& folder, comm::ProcessGroup& group) {
  const SmallData data;
  ScoredStep step(values);
  step.skipped = options.skipped;
  CheckpointStore store(folder, 1);
  store.set_guard([&] {
    if (std::ranges::count(options.unwritten, step.steps()) > 0) throw IoError("no space");
  });
  data::Loader loader(data, {.batch = 4, .prefetch = 0}), test(data, {.batch = 4, .prefetch = 0});
  TrainerOptions trainer;
  trainer.steps = options.steps == 0 ? static_cast<int64_t>(values.size()) : options.steps;
  trainer.evaluate_every = 1;
  trainer.checkpoint_every = options.saves_every;
  trainer.skip_nonfinite = options.skipped.empty() ? 0 : 9;
  trainer.best = options.metric;
  Trainer run(step, loader, &test, trainer, &store, group);
  if (options.resumes) {
    EXPECT_TRUE(run.resume(store, std::nullopt));
  }
  BestRecorder recorder;
  const auto outcome = run.run(recorder);
  return {recorder.steps, outcome.best};
}

class Best : public testing::Test {
 protected:
  Steps train(const std::vector<double>& values, const BestOptions& options) {
    const auto outcome = train_for_best(values, options, folder_ / "checkpoints", *comm::make_single_group());
    best_ = outcome.best;
    return outcome.best_so_far;
  }
  Steps saved() const { return CheckpointStore(folder_ / "checkpoints").list(); }
  void expect_best(int64_t step, double value) const {
    ASSERT_TRUE(best_.has_value());
    EXPECT_EQ(best_->step, step);
    EXPECT_EQ(best_->value, value);
  }

  test::TemporaryFolder folder_;
  std::optional<BestTest> best_;
};

TEST_F(Best, EachTestThatIsBetterThanAllBeforeIsSaved) {
  EXPECT_EQ(train({0.1, 0.5, 0.4, 0.5, 0.3}, {}), (Steps{1, 2}));
  EXPECT_EQ(saved(), (Steps{5, 2}));  // the last one, and the best
  expect_best(2, 0.5);
  EXPECT_EQ(best_->metric, "right");
}

TEST_F(Best, TheScoreSaysWhatIsBetter) {
  EXPECT_EQ(train({0.3, 0.5, 0.2, 0.4}, {.metric = "wrong"}), (Steps{1, 3}));
  EXPECT_EQ(saved(), (Steps{4, 3}));
  expect_best(3, 0.2);
}

TEST_F(Best, WithoutAMetricNothingMoreIsSaved) {
  EXPECT_EQ(train({0.3, 0.5, 0.2, 0.4}, {.metric = ""}), Steps{});
  EXPECT_EQ(saved(), Steps{4});
  EXPECT_FALSE(best_.has_value());
}

TEST_F(Best, ALastTestThatIsTheBestIsToldByItsCheckpoint) {
  train({0.1, 0.2, 0.3}, {.saves_every = 3});
  EXPECT_EQ(saved(), Steps{3});
  EXPECT_EQ(CheckpointStore(folder_ / "checkpoints").best(), 3);
}

TEST_F(Best, AResumeKnowsTheBestOnAnyNumberOfRanks) {
  const std::vector<double> values = {0.1, 0.7, 0.2, 0.6, 0.5, 0.8, 0.1};
  for (const int before : {1, 2, 3}) {
    for (const int after : {1, 2, 3}) {
      std::filesystem::remove_all(folder_ / "checkpoints");
      const auto on_ranks = [&](int ranks, const BestOptions& options) {
        comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
          const auto outcome = train_for_best(values, options, folder_ / "checkpoints", group);
          if (group.rank() == 0) best_ = outcome.best;
        });
      };
      on_ranks(before, {.steps = 3});
      EXPECT_EQ(saved(), (Steps{3, 2}));
      on_ranks(after, {.steps = 5, .resumes = true});
      EXPECT_EQ(saved(), (Steps{5, 2}));
      expect_best(2, 0.7);
      on_ranks(before, {.steps = 7, .resumes = true});
      EXPECT_EQ(saved(), (Steps{7, 6}));
      expect_best(6, 0.8);
    }
  }
}

TEST_F(Best, ATestThatIsDoneAgainIsNotBetter) {
  train({0.1, 0.7}, {});
  EXPECT_EQ(train({0.1, 0.8}, {.resumes = true}), Steps{});  // of the same step, as on other ranks
  expect_best(2, 0.7);
}

TEST_F(Best, AnotherScoreBeginsAnew) {
  train({0.5, 0.4}, {});
  EXPECT_EQ(train({0.5, 0.4, 0.6, 0.5}, {.metric = "wrong", .resumes = true}), (Steps{3, 4}));
  expect_best(4, 0.5);
}

TEST_F(Best, ATestAfterASkippedStepDoesNotCount) {
  EXPECT_EQ(train({0.1, 0.9, 0.2, 0.1}, {.skipped = {2}}), (Steps{1, 3}));
  expect_best(3, 0.2);
}

TEST_F(Best, ATestWhoseStateIsNotSavedDoesNotCount) {
  EXPECT_EQ(train({0.1, 0.9, 0.2, 0.1}, {.unwritten = {2}}), (Steps{1, 3}));
  EXPECT_EQ(saved(), (Steps{4, 3}));
  expect_best(3, 0.2);
}

TEST_F(Best, AScoreThatTheTestsDoNotMeasureIsNamed) {
  EXPECT_EQ(test::text_of<SettingsError>([&] { train({0.1}, {.metric = "top1"}); }),
            "best is 'top1', wanted right or wrong, which the tests measure");
}

}  // namespace
}  // namespace tandem::train
