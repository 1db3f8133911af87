#include "tandem/train/trainer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <deque>

#include "tandem/comm/world.h"
#include "tests/support/files.h"
#include "tests/train/small_task.h"

namespace tandem::train {
namespace {

/// A step without loss function, gradient or optimizer: it counts.
class CountingStep : public Step {
 public:
  void allow_skips(int64_t in_a_row) override { calls += "skips" + std::to_string(in_a_row) + " "; }
  std::optional<Reading> run(const data::Batch& batch, int64_t step, double) override {
    total_.add_(batch.global_size);
    ++steps_;
    calls += std::to_string(step) + " ";
    return Reading{.loss = static_cast<double>(steps_)};
  }
  void settle() override { calls += "settle "; }
  std::vector<Parameter> weights() const override { return {}; }
  std::vector<Parameter> state() const override { return {Parameter::replicated("total", total_)}; }
  storage::Fields numbers() const override { return {{"counted", steps_}}; }
  void set_numbers(const storage::Fields& numbers) override { steps_ = storage::whole_number(numbers, "counted"); }
  Scores evaluate(data::Loader&, const Tick&, const Answered&) override {
    calls += "evaluate ";
    return {{{"half", "half", 0.5, ScoreUnit::fraction}}, 16};
  }

  std::string calls;
  Tensor total_ = at::zeros({1});
  int64_t steps_ = 0;
};

struct Recorder : Observer {
  std::vector<double> losses;
  Scores scores;
  void on_step(int64_t, int64_t, double, std::optional<double> loss) override { losses.push_back(*loss); }
  void on_scores(int64_t, const Scores& found) override { scores = found; }
};

TEST(Trainer, DrivesAnyStepAndSavesItsNumbers) {
  const SmallData data;
  const test::TemporaryFolder folder;
  CheckpointStore store(folder.path());
  const auto group = comm::make_single_group();
  data::Loader loader(data, {.batch = 4, .prefetch = 0}), test(data, {.batch = 4, .prefetch = 0});
  const auto train = [&](CountingStep& step, int64_t steps, bool resumes) {
    TrainerOptions options;
    options.steps = steps;
    options.skip_nonfinite = 3;
    options.log_every = 1;
    Trainer trainer(step, loader, &test, options, &store, *group);
    if (resumes) {
      EXPECT_TRUE(trainer.resume(store, std::nullopt));
    }
    Recorder recorder;
    trainer.run(recorder);
    EXPECT_EQ(recorder.scores.value("half"), 0.5);
    EXPECT_EQ(recorder.scores.value("top1"), 0);
    return recorder.losses;
  };
  CountingStep first, second;
  EXPECT_EQ(train(first, 2, false), (std::vector<double>{1, 2}));
  EXPECT_EQ(first.calls, "skips3 0 1 settle settle evaluate settle ");
  EXPECT_EQ(train(second, 3, true), (std::vector<double>{3}));
  EXPECT_EQ(second.total_.item<double>(), 12);
}

/// Its steps end two late.
class LateStep : public CountingStep {
 public:
  std::optional<Reading> run(const data::Batch& batch, int64_t step, double lr) override {
    under_way_.push_back(*CountingStep::run(batch, step, lr));
    return under_way_.size() > 2 ? end_next() : std::nullopt;
  }
  int64_t staleness() const override { return 2; }
  std::optional<Reading> end_next() override {
    if (under_way_.empty()) return std::nullopt;
    const auto reading = under_way_.front();
    under_way_.pop_front();
    return reading;
  }
  void settle() override {
    EXPECT_TRUE(under_way_.empty());
    calls += "settle ";
  }

 private:
  std::deque<Reading> under_way_;
};

TEST(Trainer, EndsLateStepsBeforeTestsAndSaves) {
  const SmallData data;
  const auto group = comm::make_single_group();
  data::Loader loader(data, {.batch = 4, .prefetch = 0}), test(data, {.batch = 4, .prefetch = 0});
  const auto train = [&](LateStep& step, int64_t stops_in, std::vector<double>& losses) {
    const test::TemporaryFolder folder;
    CheckpointStore store(folder.path());
    TrainerOptions options;
    options.steps = 11;
    options.log_every = 1;
    options.evaluate_every = 5;
    options.checkpoint_every = 7;
    options.stop_requested = [&] { return step.steps_ >= stops_in; };
    Trainer trainer(step, loader, &test, options, &store, *group);
    Recorder recorder;
    const auto outcome = trainer.run(recorder);
    losses = recorder.losses;
    return outcome;
  };
  std::vector<double> losses;
  LateStep all, stopped;
  EXPECT_FALSE(train(all, 99, losses).stopped);
  EXPECT_EQ(losses, (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(all.calls, "0 1 2 3 4 settle evaluate 5 6 settle 7 8 9 settle evaluate 10 settle settle evaluate settle ");
  const auto outcome = train(stopped, 6, losses);  // asked for while two steps are under way
  EXPECT_TRUE(outcome.stopped);
  EXPECT_EQ(outcome.steps, 7);  // where a save ends them
  EXPECT_EQ(losses.size(), 7U);
}

}  // namespace
}  // namespace tandem::train
