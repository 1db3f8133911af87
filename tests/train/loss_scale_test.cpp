#include "tandem/train/loss_scale.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>
#include <set>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tests/support/files.h"
#include "tests/support/python.h"
#include "tests/support/text_of.h"
#include "tests/train/classifier_task.h"
#include "tests/train/small_task.h"

namespace tandem::train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Steps are counted from 0.
using Steps = std::set<int64_t>;

std::function<SmallTask::Step(int64_t)> bad_on_last_rank(const Steps& steps, comm::ProcessGroup& group) {
  const bool is_last = group.rank() + 1 == group.size();
  return [=](int64_t step) {
    return SmallTask::Step{.gradient_of_v = is_last && steps.contains(step - 1) ? kInfinity : 1};
  };
}

TEST(LossScale, FollowsPythonsRuleStepByStep) {
  constexpr int64_t kSteps = 24, kInterval = 3;
  const auto told =
      test::ask_python("loss_scale.py", {std::to_string(kSteps), std::to_string(kInterval), "0,1,5,8,12"});
  if (told.missing) GTEST_SKIP() << "no oracle: " << told.text;
  const SmallData data;
  for (const int ranks : {1, 2, 3}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      SmallTask task(group);
      task.change = bad_on_last_rank({0, 1, 5, 8, 12}, group);
      parallel::Mesh mesh({.data = group.size()}, group);
      SupervisedStep step(task,
                          {.optimizer = {.momentum = 0.9, .weight_decay = 0},
                           .num_classes = 2,
                           .loss_scale = LossScaleOptions{.growth_interval = kInterval}},
                          mesh);
      data::Loader loader(data, {.batch = 4, .rank = group.rank(), .size = group.size(), .prefetch = 0});
      data::Batch batch;
      int64_t left_out = 0;
      for (int64_t i = 0; i < kSteps; ++i) {
        if (i % 4 == 0) loader.start(i / 4);
        ASSERT_TRUE(loader.next(batch));
        const auto reading = *step.run(batch, i, 0.05);
        left_out += reading.is_left_out ? 1 : 0;
        EXPECT_TRUE(reading.loss && !reading.skipped && !reading.fault);
        EXPECT_EQ(value_of(step.facts(), "loss_scale"), told.tensors.at("scale")[i].item<double>()) << "step " << i;
        EXPECT_EQ(value_of(step.facts(), "left_out_steps"), left_out);
        EXPECT_TRUE(at::allclose(task.w(), told.tensors.at("w")[i], 0, 1e-6)) << "step " << i;
      }
      EXPECT_EQ(left_out, 5);
    });
  }
}

struct Trial {
  int ranks = 1;
  std::optional<LossScaleOptions> loss_scale = LossScaleOptions();
  int64_t steps = 6, first_steps = 0, skip_nonfinite = 0;
  double clip = 0;
  Steps bad = {};
  std::function<SmallTask::Step(int64_t step)> change = {};  // in place of `bad`
};

struct Ended {
  std::string text;  // of rank 0's NonFiniteError; "": it ended well
  std::vector<Tensor> state;
  Outcome outcome;
  Facts facts;
};

Ended run(const Trial& trial, CheckpointStore* store = nullptr, bool resumes = false) {
  const SmallData data;
  Ended ended;
  std::mutex mutex;
  comm::run_ranks(trial.ranks,
                  [&](comm::ProcessGroup& group) {
                    data::Loader loader(data, {.batch = 4, .rank = group.rank(), .size = group.size(), .prefetch = 0});
                    SmallTask task(group);
                    task.change = trial.change ? trial.change : bad_on_last_rank(trial.bad, group);
                    parallel::Mesh mesh({.data = group.size()}, group);
                    SupervisedStep step(task,
                                        {.optimizer = {.momentum = 0.9, .weight_decay = 0},
                                         .clip = trial.clip,
                                         .num_classes = 2,
                                         .loss_scale = trial.loss_scale},
                                        mesh);
                    TrainerOptions options;
                    options.steps = trial.steps;
                    options.schedule = {.kind = ScheduleKind::constant, .lr = 0.05, .steps = trial.steps, .warmup = 0};
                    options.skip_nonfinite = trial.skip_nonfinite;
                    Trainer trainer(step, loader, nullptr, options, store, group);
                    if (resumes) {
                      EXPECT_TRUE(trainer.resume(*store, std::nullopt));
                    }
                    Ended own;
                    Observer nobody;
                    try {
                      own.outcome = trainer.run(nobody);
                    } catch (const NonFiniteError& error) {
                      own.text = error.what();
                    }
                    for (const auto& parameter : step.state()) own.state.push_back(parameter.tensor.detach().clone());
                    own.facts = step.facts();
                    const std::lock_guard lock(mutex);
                    if (group.rank() == 0) ended = std::move(own);
                  },
                  {.threads = 1});
  return ended;
}

void expect_same_bits(const Ended& one, const Ended& other) {
  ASSERT_EQ(one.state.size(), other.state.size());
  for (size_t i = 0; i < one.state.size(); ++i) EXPECT_TRUE(one.state[i].equal(other.state[i])) << i;
}

/// A power of two changes no bit, before clipping least of all.
TEST(LossScale, ChangesNoGradient) {
  for (const int ranks : {1, 3}) {
    for (const double clip : {0.0, 0.3}) {
      const auto plain = run({.ranks = ranks, .loss_scale = std::nullopt, .clip = clip});
      EXPECT_FALSE(value_of(plain.facts, "loss_scale"));
      expect_same_bits(run({.ranks = ranks, .clip = clip}), plain);
      const LossScaleOptions constant = {.scale = 1024, .is_dynamic = false};
      const auto found = run({.ranks = ranks, .loss_scale = constant, .clip = clip});
      expect_same_bits(found, plain);
      EXPECT_EQ(value_of(found.facts, "loss_scale"), 1024);
    }
  }
}

TEST(LossScale, AStepThatIsLeftOutChangesNothingAndIsNotCountedAsSkipped) {
  for (const int ranks : {1, 2, 3}) {
    const auto found = run({.ranks = ranks, .steps = 9, .bad = {0, 1, 2, 5}});
    EXPECT_EQ(found.text, "");
    EXPECT_EQ(found.outcome.skipped_steps, 0);
    EXPECT_EQ(found.outcome.steps, 9);
    EXPECT_EQ(value_of(found.facts, "left_out_steps"), 4);
    EXPECT_EQ(value_of(found.facts, "loss_scale"), 4096);
    expect_same_bits(found, run({.ranks = ranks, .steps = 5}));
  }
}

/// Skipped steps are those that no scale helps.
TEST(LossScale, ALossThatIsNotFiniteIsAFault) {
  const auto change = [](int64_t step) { return SmallTask::Step{.loss = step == 3 ? kNaN : 1}; };
  EXPECT_EQ(run({.ranks = 2, .change = change}).text,
            "loss of step 3 is not a number, wanted a finite number: lower lr or set clip");
  const auto found = run({.ranks = 2, .skip_nonfinite = 1, .change = change});
  EXPECT_EQ(found.outcome.skipped_steps, 1);
  EXPECT_EQ(value_of(found.facts, "loss_scale"), 65536);
  expect_same_bits(found, run({.ranks = 2, .steps = 5}));
}

/// 65536 = 2^16 is halved 30 times.
TEST(LossScale, EndsARunThatNoScaleHelps) {
  const auto change = [](int64_t) { return SmallTask::Step{.gradient_of_w = kNaN}; };
  for (const int ranks : {1, 2}) {
    const auto found = run({.ranks = ranks, .steps = 100, .change = change});
    EXPECT_EQ(found.text, "gradient of 'w' in step 31 is not finite, wanted finite numbers: lower lr or set clip");
    EXPECT_EQ(value_of(found.facts, "loss_scale"), 1.0 / 16384);
    EXPECT_EQ(value_of(found.facts, "left_out_steps"), 30);
  }
  const LossScaleOptions constant = {.scale = 1024, .is_dynamic = false};
  EXPECT_EQ(run({.loss_scale = constant, .bad = {2}}).text,
            "gradient of 'v' in step 3 is not finite, wanted finite numbers: lower loss_scale, lower lr or set clip");
}

TEST(LossScale, GoesOnWhereACheckpointHasIt) {
  for (const int ranks : {1, 3}) {
    const test::TemporaryFolder folder;
    CheckpointStore store(folder.path());
    const LossScaleOptions fast = {.growth_interval = 3};
    const Steps bad = {0, 3, 4, 9};
    const auto whole = run({.ranks = ranks, .loss_scale = fast, .steps = 14, .bad = bad});
    run({.ranks = ranks, .loss_scale = fast, .steps = 7, .bad = bad}, &store);
    const auto found = run({.ranks = ranks, .loss_scale = fast, .steps = 14, .bad = bad}, &store, /*resumes=*/true);
    EXPECT_EQ(value_of(found.facts, "loss_scale"), value_of(whole.facts, "loss_scale"));
    EXPECT_EQ(value_of(found.facts, "left_out_steps"), 4);
    expect_same_bits(found, whole);
    // A checkpoint of another precision has none; a constant scale is the user's.
    const LossScaleOptions constant = {.scale = 8, .is_dynamic = false};
    EXPECT_EQ(value_of(run({.ranks = ranks, .loss_scale = constant, .steps = 15}, &store, true).facts, "loss_scale"),
              8);
    EXPECT_EQ(run({.ranks = ranks, .loss_scale = std::nullopt, .steps = 16}, &store, true).text, "");
    EXPECT_EQ(value_of(run({.ranks = ranks, .steps = 17}, &store, true).facts, "loss_scale"), 65536);
  }
}

/// Infinite on the last rank, in the first parameter of the backbone.
class BadTask : public ClassifierTask {
 public:
  BadTask(const Recipe& recipe, comm::ProcessGroup& group, Steps bad)
      : ClassifierTask(recipe, group), bad_(std::move(bad)) {
    if (group.rank() + 1 < group.size()) return;
    parameters()[0].tensor.register_hook(
        [this](const Tensor& gradient) { return bad_.contains(step_) ? gradient / 0.0 : gradient; });
  }
  void begin_step(int64_t step) override {
    ClassifierTask::begin_step(step);
    step_ = step;
  }

 private:
  Steps bad_;
  int64_t step_ = -1;
};

/// Each strategy leaves out, on all ranks, what it would skip, and its gradients have the bits of those without a
/// scale.
TEST(LossScale, AllStrategiesLeaveOutTheSameSteps) {
  const Patterns patterns;
  Recipe recipe = {.model = "resnet_glyph"};
  recipe.head.dtype = at::kDouble;
  for (const auto& strategy : parallel::strategies()) {
    const int ranks = strategy.is_one_process ? 1 : 3;
    parallel::StrategyOptions of_strategy;
    of_strategy.dp.replicas = 2;
    comm::run_ranks(ranks,
                    [&](comm::ProcessGroup& group) {
                      std::array<std::vector<Tensor>, 2> states;
                      for (const bool is_scaled : {false, true}) {
                        data::Loader loader(patterns, {.batch = 23, .rank = group.rank(), .size = group.size()});
                        BadTask task(recipe, group, {1, 2});
                        parallel::Mesh mesh(strategy.mesh(group.size(), of_strategy), group);
                        SupervisedStepOptions options = {
                            .accumulate = 2, .num_classes = 11, .strategy = &strategy, .strategy_options = of_strategy};
                        if (is_scaled) options.loss_scale.emplace();
                        SupervisedStep step(task, options, mesh);
                        if (!is_scaled) step.allow_skips(2);
                        loader.start(0);
                        data::Batch batch;
                        for (int64_t i = 0; i < 4 && loader.next(batch); ++i) {
                          const auto reading = *step.run(batch, i, 0.05);
                          EXPECT_EQ(is_scaled ? reading.is_left_out : reading.skipped.has_value(), i == 1 || i == 2);
                        }
                        EXPECT_EQ(value_of(step.facts(), "loss_scale").value_or(1), is_scaled ? 16384 : 1)
                            << strategy.name;
                        for (const auto& own : step.state()) states[is_scaled].push_back(own.tensor.detach().clone());
                      }
                      for (size_t i = 0; i < states[0].size(); ++i) {
                        EXPECT_TRUE(states[0][i].equal(states[1][i])) << strategy.name << ' ' << i;
                      }
                    },
                    {.threads = 1});
  }
}

TEST(LossScale, RefusesWhatItCannotDo) {
  const auto text = [](const LossScaleOptions& options) {
    return test::text_of<SettingsError>([&] { LossScale scale(options); });
  };
  EXPECT_EQ(text({.scale = 0}), "loss_scale is 0.000000, wanted a number above 0 that float32 holds");
  EXPECT_EQ(text({.scale = kNaN}), "loss_scale is nan, wanted a number above 0 that float32 holds");
  EXPECT_EQ(text({.growth_interval = 0}), "growth interval of the loss scale is 0, wanted 1 step or more");
  EXPECT_EQ(test::text_of<SettingsError>([] {
              comm::run_ranks(1, [](comm::ProcessGroup& group) {
                SmallTask task(group);
                task.steps_in_backward = true;
                parallel::Mesh mesh({}, group);
                SupervisedStep step(task, {.num_classes = 2, .loss_scale = LossScaleOptions()}, mesh);
              });
            }),
            "loss_scale is 65536.000000 with a parameter that is updated before all gradients are known: leave "
            "loss_scale out, or update that parameter with the others");
}

/// It stays a number of float32.
TEST(LossScale, GrowsNoFurtherThanFloat32) {
  LossScale scale({.scale = 0x1p126, .growth_interval = 1});
  for (int i = 0; i < 3; ++i) scale.count_good_step();
  EXPECT_EQ(scale.scale(), 0x1p127);
}

}  // namespace
}  // namespace tandem::train
