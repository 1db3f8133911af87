#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "tandem/base/finite.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/world.h"
#include "tests/support/files.h"
#include "tests/train/classifier_task.h"

namespace tandem::train {
namespace {

// Steps with strategies whose ranks train apart. The head is split over the ranks and trains in every step.

struct Plan {
  std::string strategy = "local-sgd";
  std::string hook = "sum";  // of ddp; one that goes apart does so in step 2
  int ranks = 3;
  int64_t every = 4, steps = 12, save_every = 0;
  OptimizerOptions optimizer = {};
  CheckpointStore* store = nullptr;
  bool resumes = false;
  int64_t bad_step = -1;  // counted from 0: rank 1's gradient is not finite
  parallel::StrategyOptions options() const {
    return {.ddp = {.hook = &parallel::gradient_hook(hook)},
            .post_local_sgd = {.start = 2, .every = every},
            .local_sgd = {.every = every},
            .diloco = {.every = every, .outer = parallel::OuterNesterov{}}};
  }
};

struct Ended {
  std::vector<std::vector<Parameter>> states;  // of each rank
  std::vector<double> losses;
  Outcome outcome;
};

class BadTask : public ClassifierTask {
 public:
  BadTask(const Recipe& recipe, comm::ProcessGroup& group, int64_t bad_step)
      : ClassifierTask(recipe, group), bad_step_(group.rank() == 1 ? bad_step : -1) {
    parameters()[0].tensor.register_hook([this](const Tensor& gradient) {
      return is_bad_ ? gradient * std::numeric_limits<double>::quiet_NaN() : gradient;
    });
  }
  void begin_step(int64_t step) override {
    ClassifierTask::begin_step(step);
    is_bad_ = step == bad_step_;
  }

 private:
  int64_t bad_step_;
  bool is_bad_ = false;
};

struct LossRecorder : Observer {
  std::vector<double> losses;
  void on_step(int64_t, int64_t, double, std::optional<double> loss) override { losses.push_back(loss.value_or(0)); }
};

TrainerOptions options_of(const Plan& plan) {
  TrainerOptions options;
  options.steps = plan.steps;
  options.schedule = {.kind = ScheduleKind::constant, .lr = 0.05, .steps = plan.steps, .warmup = 0};
  options.log_every = 1;
  options.checkpoint_every = plan.save_every;
  options.skip_nonfinite = plan.bad_step >= 0 ? 1 : 0;
  return options;
}

Recipe recipe_of(const std::string& model) {
  Recipe recipe = {.model = model};
  recipe.head.dtype = at::kDouble;
  return recipe;
}

Ended run(const Recipe& recipe, const Plan& plan) {
  const Patterns patterns;
  Ended ended;
  ended.states.resize(plan.ranks);
  std::mutex mutex;
  comm::run_ranks(
      plan.ranks,
      [&](comm::ProcessGroup& group) {
        data::Loader loader(patterns, {.batch = 23, .rank = group.rank(), .size = group.size()});
        BadTask task(recipe, group, plan.bad_step);
        const auto& strategy = parallel::strategy_of(plan.strategy);
        parallel::Mesh mesh(strategy.mesh(group.size(), plan.options()), group);
        SupervisedStep step(
            task,
            {.optimizer = plan.optimizer, .num_classes = 11, .strategy = &strategy, .strategy_options = plan.options()},
            mesh);
        Trainer trainer(step, loader, nullptr, options_of(plan), plan.store, group);
        if (plan.resumes) {
          EXPECT_TRUE(trainer.resume(*plan.store, std::nullopt));
        }
        LossRecorder recorder;
        const auto outcome = trainer.run(recorder);
        const std::lock_guard lock(mutex);
        ended.states[group.rank()] = step.state();
        if (group.rank() == 0) ended.outcome = outcome, ended.losses = recorder.losses;
      },
      {.threads = 1});
  return ended;
}

void expect_same_bits(const std::vector<Parameter>& one, const std::vector<Parameter>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].name, other[i].name);
    EXPECT_TRUE(one[i].tensor.equal(other[i].tensor)) << one[i].name;
  }
}

TEST(Apart, AMeetingAfterEachPlainStepIsDataParallel) {
  const OptimizerOptions plain = {.momentum = 0, .nesterov = false, .weight_decay = 1e-3};
  for (const int ranks : {1, 2, 3, 4}) {
    const auto together = run(recipe_of("mlp"), {.strategy = "ddp", .ranks = ranks, .optimizer = plain});
    const auto apart = run(recipe_of("mlp"), {.ranks = ranks, .every = 1, .optimizer = plain});
    for (size_t i = 0; i < together.losses.size(); ++i) EXPECT_NEAR(apart.losses[i], together.losses[i], 1e-12);
    for (int rank = 0; rank < ranks; ++rank) {
      for (size_t i = 0; i < together.states[rank].size(); ++i) {
        const auto& [name, expected, placement] = together.states[rank][i];
        EXPECT_TRUE(at::allclose(apart.states[rank][i].tensor, expected, 0, 1e-12)) << name << " ranks " << ranks;
      }
    }
  }
}

/// Strategies and hooks of ddp.
constexpr std::array<std::pair<const char*, const char*>, 3> kWays = {
    {{"local-sgd", "sum"}, {"diloco", "sum"}, {"ddp", "post-local-sgd"}}};

/// Until the ranks go apart, all is as with ddp: here they never do, or at the last step of all.
TEST(Apart, PostLocalSgdBeginsAsDataParallel) {
  for (const int64_t steps : {2, 3}) {
    const auto together = run(recipe_of("resnet_glyph"), {.strategy = "ddp", .steps = steps});
    const auto found = run(recipe_of("resnet_glyph"), {.strategy = "ddp", .hook = "post-local-sgd", .steps = steps});
    EXPECT_EQ(found.losses, together.losses);
    if (steps == 2) expect_same_bits(found.states[1], together.states[1]);
  }
}

/// With batch statistics; a save in the middle of a round, of which the uninterrupted run makes one too.
TEST(Apart, ResumingGivesTheSameBits) {
  for (const auto& [strategy, hook] : kWays) {
    for (const auto kind : {OptimizerKind::sgd, OptimizerKind::adamw}) {
      for (const int ranks : {1, 3}) {
        const test::TemporaryFolder whole_folder, folder;
        CheckpointStore whole_store(whole_folder.path()), store(folder.path());
        const Plan plan = {
            .strategy = strategy, .hook = hook, .ranks = ranks, .every = 3, .steps = 7, .optimizer = {.kind = kind}};
        auto whole = plan, first = plan, second = plan;
        whole.store = &whole_store, first.store = second.store = &store;
        whole.save_every = first.steps = 4;
        second.resumes = true;
        const auto expected = run(recipe_of("resnet_glyph"), whole);
        run(recipe_of("resnet_glyph"), first);
        const auto found = run(recipe_of("resnet_glyph"), second);
        EXPECT_EQ(found.losses, std::vector<double>(expected.losses.begin() + 4, expected.losses.end()));
        for (int rank = 0; rank < ranks; ++rank) expect_same_bits(found.states[rank], expected.states[rank]);
      }
    }
  }
}

TEST(Apart, AllRanksAreOneModelAtTheEndAlsoAfterASkippedStep) {
  for (const auto& [strategy, hook] : kWays) {
    const auto ended = run(recipe_of("resnet_glyph"), {.strategy = strategy, .hook = hook, .every = 5, .bad_step = 6});
    EXPECT_EQ(ended.outcome.skipped_steps, 1);
    for (size_t i = 0; i < ended.states[0].size(); ++i) {
      const auto& [name, tensor, placement] = ended.states[0][i];
      EXPECT_TRUE(all_finite(tensor.detach())) << name;
      if (!placement.is_everywhere()) continue;
      for (const int rank : {1, 2}) EXPECT_TRUE(ended.states[rank][i].tensor.equal(tensor)) << name;
    }
  }
}

/// Each rank's backbone moves by the clip times the learning rate, and so does the head of all ranks.
TEST(Apart, EachRankClipsItsOwnGradient) {
  constexpr double kClip = 1e-4, kRate = 0.5;
  const Patterns patterns;
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    ClassifierTask task(recipe_of("mlp"), group);
    const auto& strategy = parallel::strategy_of("local-sgd");
    parallel::Mesh mesh(strategy.mesh(group.size(), {}), group);
    SupervisedStep step(task,
                        {.optimizer = {.momentum = 0, .nesterov = false, .weight_decay = 0},
                         .clip = kClip,
                         .num_classes = 11,
                         .strategy = &strategy},
                        mesh);
    std::vector<Tensor> before;
    for (const auto& parameter : task.parameters()) before.push_back(parameter.tensor.detach().clone());
    data::Loader loader(patterns, {.batch = 23, .rank = group.rank(), .size = group.size()});
    loader.start(0);
    data::Batch batch;
    ASSERT_TRUE(loader.next(batch));
    step.run(batch, 0, kRate);
    double own = 0, of_head = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const auto parameter = task.parameters()[i];
      const auto moved = (parameter.tensor.detach() - before[i]).square().sum().item<double>();
      (parameter.placement.is_everywhere() ? own : of_head) += moved;
    }
    of_head = comm::reduce_number(of_head, comm::Reduce::sum, group);
    EXPECT_NEAR(std::sqrt(own), kClip * kRate, 1e-2 * kClip * kRate);
    EXPECT_NEAR(std::sqrt(of_head), kClip * kRate, 1e-2 * kClip * kRate);
  });
}

}  // namespace
}  // namespace tandem::train
