#include "tandem/train/detail/divergence.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "tandem/base/error.h"
#include "tandem/base/finite.h"
#include "tandem/comm/world.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"
#include "tests/train/small_task.h"

namespace tandem::train {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Step = SmallTask::Step;

struct Trial {
  int ranks = 1;
  TrainerOptions options = {};
  std::function<Step(int64_t step, int rank)> change = {};
  bool steps_in_backward = false;
  bool tests = false;  // on held-out data, at the end
  int64_t accumulate = 1;
  OptimizerOptions optimizer = {.momentum = 0.9, .weight_decay = 0};
  const parallel::Strategy* strategy = &parallel::strategies().front();
};

TrainerOptions options_of(int64_t steps, int64_t checkpoint_every = 0) {
  TrainerOptions options;
  options.steps = steps;
  options.schedule = {.kind = ScheduleKind::constant, .lr = 0.1, .steps = steps, .warmup = 0};
  options.log_every = 1;
  options.checkpoint_every = checkpoint_every;
  return options;
}

struct Skips : Observer {
  std::vector<std::string> lines;
  std::vector<std::optional<double>> losses;
  void on_skipped_step(int64_t step, const std::string& fault) override {
    lines.push_back(std::to_string(step) + ": " + fault);
  }
  void on_step(int64_t, int64_t, double, std::optional<double> loss) override { losses.push_back(loss); }
};

struct Ended {
  std::vector<std::string> texts;  // of each rank's NonFiniteError; "" when it ended well
  std::vector<Tensor> state;       // of rank 0: w, v, seen, optimizer state
  Outcome outcome;                 // of rank 0
  Skips skips;                     // of rank 0
};

Ended run(const Trial& trial, const std::filesystem::path& folder) {
  SmallData data;
  Ended ended;
  ended.texts.resize(trial.ranks);
  std::mutex mutex;
  comm::run_ranks(trial.ranks,
                  [&](comm::ProcessGroup& group) {
                    data::Loader loader(data, {.batch = 4, .rank = group.rank(), .size = group.size(), .prefetch = 0});
                    data::Loader test(data, {.batch = 4, .rank = group.rank(), .size = group.size(), .prefetch = 0});
                    SmallTask task(group);
                    task.steps_in_backward = trial.steps_in_backward;
                    if (trial.change) task.change = [&](int64_t step) { return trial.change(step, group.rank()); };
                    CheckpointStore store(folder, 100);
                    parallel::Mesh mesh(trial.strategy->mesh(group.size(), {}), group);
                    SupervisedStep step(task,
                                        {.optimizer = trial.optimizer,
                                         .accumulate = trial.accumulate,
                                         .num_classes = 2,
                                         .strategy = trial.strategy},
                                        mesh);
                    Trainer trainer(step, loader, trial.tests ? &test : nullptr, trial.options, &store, group);
                    Skips skips;
                    Outcome outcome;
                    std::string text;
                    try {
                      outcome = trainer.run(skips);
                    } catch (const NonFiniteError& error) {
                      text = error.what();
                    }
                    const std::lock_guard lock(mutex);
                    ended.texts[group.rank()] = text;
                    if (group.rank() != 0) return;
                    for (const auto& tensor : {task.w(), task.v(), task.seen()})
                      ended.state.push_back(tensor.detach().clone());
                    for (const auto& state : step.state()) {
                      if (state.name.starts_with("optimizer.")) ended.state.push_back(state.tensor.clone());
                    }
                    ended.outcome = outcome;
                    ended.skips = std::move(skips);
                  },
                  {.threads = 1});
  return ended;
}

void expect_everywhere(const Ended& ended, const std::string& text) {
  for (const auto& found : ended.texts) EXPECT_EQ(found, text) << "ranks: " << ended.texts.size();
}

TEST(Divergence, OneRanksGradientEndsAllRanksAndIsNamed) {
  for (const int ranks : {1, 2, 3}) {
    for (const char* name : {"w", "v"}) {
      for (const double bad : {kNaN, kInfinity}) {
        const test::TemporaryFolder folder;
        const int culprit = ranks - 1;
        const auto ended = run({.ranks = ranks,
                                .options = options_of(6, 2),
                                .change =
                                    [&](int64_t step, int rank) {
                                      Step changed;
                                      if (step == 4 && rank == culprit)
                                        (*name == 'w' ? changed.gradient_of_w : changed.gradient_of_v) = bad;
                                      return changed;
                                    }},
                               folder.path());
        const std::string where =
            ranks > 1 && *name == 'v' ? " (rank " + std::to_string(culprit) + " of " + std::to_string(ranks) + ")" : "";
        expect_everywhere(ended, std::string("gradient of '") + name +
                                     "' in step 4 is not finite, wanted finite numbers" + where +
                                     ": lower lr or set clip; the checkpoint of step 2 is from before");
        EXPECT_EQ(CheckpointStore(folder.path()).list(), std::vector<int64_t>{2});
      }
    }
  }
}

TEST(Divergence, ACheckpointThatLeadsToTheFaultAgainIsSetAside) {
  for (const int ranks : {1, 3}) {
    const test::TemporaryFolder folder;
    const auto ended = run({.ranks = ranks,
                            .options = options_of(6, 1),
                            .change = [](int64_t step, int) { return Step{.loss = step == 3 ? kNaN : 1}; }},
                           folder.path());
    expect_everywhere(ended,
                      "loss of step 3 is not a number, wanted a finite number: lower lr or set clip; "
                      "the checkpoint of step 2 leads to this again and is set aside as aside_step_00000002");
    const CheckpointStore store(folder.path());
    EXPECT_EQ(store.list(), std::vector<int64_t>{1});
    EXPECT_TRUE(std::filesystem::exists(folder / "aside_step_00000002/manifest.json"));
  }
}

TEST(Divergence, WhatAnUpdateMakesIsNeverSaved) {
  struct Case {
    const char* name;
    TrainerOptions options;
    Step step;
    OptimizerOptions optimizer = Trial().optimizer;
  };
  auto fast = options_of(1);
  fast.schedule.lr = 1e39;
  for (const auto& one :
       {Case{"w", fast, {}}, Case{"seen", options_of(1), {.seen = kInfinity}},
        Case{"optimizer.exp_avg_sq.w", options_of(1), {.gradient_of_w = 1e25}, {.kind = OptimizerKind::adamw}}}) {
    for (const int ranks : {1, 2, 3}) {
      const test::TemporaryFolder folder;
      const auto ended = run({.ranks = ranks,
                              .options = one.options,
                              .change = [&](int64_t, int) { return one.step; },
                              .optimizer = one.optimizer},
                             folder.path());
      expect_everywhere(ended, std::string("'") + one.name +
                                   "' is not finite after step 1, wanted finite numbers: lower lr or set "
                                   "clip");
      EXPECT_TRUE(CheckpointStore(folder.path()).list().empty());
    }
  }
}

TEST(Divergence, ALossThatComesFromAWeightNamesIt) {
  const test::TemporaryFolder folder;
  auto options = options_of(5);
  options.schedule.lr = 1e39;
  expect_everywhere(run({.ranks = 2, .options = options}, folder.path()),
                    "'w' is not finite after step 1, wanted finite numbers: lower lr or set clip");
}

TEST(Divergence, RowsThatAreSteppedInBackwardCountToo) {
  const test::TemporaryFolder folder;
  const auto ended = run(
      {.ranks = 2,
       .options = options_of(4),
       .change = [](int64_t step, int rank) { return Step{.gradient_of_v = step == 2 && rank == 1 ? kInfinity : 1}; },
       .steps_in_backward = true},
      folder.path());
  expect_everywhere(ended,
                    "gradient of 'v' in step 2 is not finite, wanted finite numbers (rank 1 of 2): lower "
                    "lr or set clip");
  EXPECT_TRUE(CheckpointStore(folder.path()).list().empty());
}

TEST(Divergence, ATestLossThatIsNotFiniteEndsTheRun) {
  const test::TemporaryFolder folder;
  const auto ended = run({.ranks = 2,
                          .options = options_of(2, 2),
                          .change = [](int64_t step, int) { return Step{.loss = step == 0 ? kInfinity : 1}; },
                          .tests = true},
                         folder.path());
  expect_everywhere(ended,
                    "test loss after step 2 is infinite, wanted a finite number: lower lr or set "
                    "clip; the checkpoint of step 2 leads to this again and is set aside as "
                    "aside_step_00000002");
}

TEST(Divergence, ASkippedStepChangesNothing) {
  const auto faulty = [](int64_t step, int rank) {
    Step changed;
    if (step == 3) changed.loss = kNaN;
    if (step == 4 && rank == 0) changed.gradient_of_v = kInfinity;
    if (step == 6) changed.gradient_of_w = kNaN;
    return changed;
  };
  for (const int ranks : {1, 2, 3}) {
    const test::TemporaryFolder folder, other;
    auto options = options_of(7);
    options.skip_nonfinite = 2;
    const auto ended = run({.ranks = ranks, .options = options, .change = faulty}, folder.path());
    const auto fewer = run({.ranks = ranks, .options = options_of(4)}, other.path());
    expect_everywhere(ended, "");
    EXPECT_EQ(ended.outcome.skipped_steps, 3);
    EXPECT_EQ(ended.outcome.steps, 7);
    for (size_t i = 0; i < ended.state.size(); ++i) EXPECT_TRUE(ended.state[i].equal(fewer.state[i])) << i;
    const std::string where = ranks == 1 ? "" : " (rank 0 of " + std::to_string(ranks) + ")";
    EXPECT_EQ(ended.skips.lines,
              (std::vector<std::string>{"3: loss of step 3 is not a number, wanted a finite number",
                                        "4: gradient of 'v' in step 4 is not finite, wanted finite numbers" + where,
                                        "6: gradient of 'w' in step 6 is not finite, wanted finite numbers"}));
    EXPECT_FALSE(ended.skips.losses[2].has_value());
    EXPECT_TRUE(ended.skips.losses[4].has_value());
  }
}

/// Step 2 is left after the backward of its first micro-batch, step 4 before it.
TEST(Divergence, AStepIsSkippedInTheMiddleOfItsMicroBatches) {
  const auto faulty = [](int64_t step, int) {
    return Step{.loss = step % 2 == 0 ? kNaN : 1, .from = step == 2 ? 1 : 0};
  };
  for (const auto& strategy : parallel::strategies()) {
    if (strategy.is_one_process) continue;
    for (const int ranks : {1, 2, 3}) {
      SCOPED_TRACE(std::string(strategy.name) + " ranks " + std::to_string(ranks));
      const test::TemporaryFolder folder, other;
      Trial trial = {.ranks = ranks, .options = options_of(3), .accumulate = 2, .strategy = &strategy};
      const auto fewer = run(trial, other.path());
      trial.change = faulty;
      trial.options = options_of(5);
      trial.options.skip_nonfinite = 1;
      const auto ended = run(trial, folder.path());
      expect_everywhere(ended, "");
      EXPECT_EQ(ended.outcome.skipped_steps, 2);
      for (size_t i = 0; i < ended.state.size(); ++i) EXPECT_TRUE(ended.state[i].equal(fewer.state[i])) << i;
    }
  }
}

TEST(Divergence, TooManySkippedStepsInARowEndTheRun) {
  const test::TemporaryFolder folder;
  auto options = options_of(9);
  options.skip_nonfinite = 2;
  const auto ended = run({.ranks = 2,
                          .options = options,
                          .change = [](int64_t step, int) { return Step{.gradient_of_w = step > 3 ? kNaN : 1}; }},
                         folder.path());
  expect_everywhere(ended,
                    "gradient of 'w' in step 6 is not finite, wanted finite numbers: the 2 steps before it were left "
                    "out; lower lr or set clip");
}

TEST(Divergence, NothingIsSavedWhileStepsAreSkipped) {
  const test::TemporaryFolder folder;
  auto options = options_of(9, 1);
  options.skip_nonfinite = 2;
  const auto ended = run(
      {.ranks = 2, .options = options, .change = [](int64_t step, int) { return Step{.loss = step > 3 ? kNaN : 1}; }},
      folder.path());
  expect_everywhere(ended,
                    "loss of step 6 is not a number, wanted a finite number: the 2 steps before it were left out; "
                    "lower lr or set clip; the checkpoint of step 3 leads to this again and is set aside "
                    "as aside_step_00000003");
  EXPECT_EQ(CheckpointStore(folder.path()).list(), (std::vector<int64_t>{2, 1}));
}

TEST(Divergence, SkippingDoesNotHelpAStateThatIsNotFinite) {
  const test::TemporaryFolder folder;
  auto options = options_of(9);
  options.skip_nonfinite = 5;
  options.schedule.lr = 1e39;
  expect_everywhere(run({.options = options}, folder.path()),
                    "'w' is not finite after step 1, wanted finite numbers: lower lr or set clip");
}

TEST(Divergence, RowsThatHaveMovedCannotBeSkipped) {
  const test::TemporaryFolder folder;
  auto options = options_of(2);
  options.skip_nonfinite = 1;
  EXPECT_EQ(test::text_of([&] { run({.options = options, .steps_in_backward = true}, folder.path()); }),
            "skip_nonfinite is 1 with a parameter that is updated before all gradients are known: leave "
            "skip_nonfinite out, or update that parameter with the others");
}

TEST(Divergence, TheVoteIsTheFirstPlaceOfTheLowestRank) {
  for (const int ranks : {1, 2, 3, 5}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      auto vote = detail::agree(false, std::nullopt, group);
      EXPECT_FALSE(vote.stop || vote.fault);
      EXPECT_EQ(detail::agree(group.rank() == ranks - 1, std::nullopt, group).stop, true);
      vote = detail::agree(false, group.rank() == 0 ? 9 : 4, group);
      EXPECT_EQ(vote.fault->place, ranks == 1 ? 9 : 4);
      EXPECT_EQ(vote.fault->rank, ranks == 1 ? 0 : 1);
    });
  }
}

}  // namespace
}  // namespace tandem::train
