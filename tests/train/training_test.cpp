#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tests/support/files.h"
#include "tests/train/classifier_task.h"
#include "tests/train/loss_recorder.h"

namespace tandem::train {
namespace {

struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> tensors;  // rank 0's shared ones, every rank's own
  Outcome outcome;
};

struct Plan {
  int ranks = 1;
  int64_t steps = 20;
  CheckpointStore* store = nullptr;
  bool resume = false;
  int64_t stop_after = 0;
  int64_t save_every = 0;
  int64_t total = 20;  // steps that the schedule is made for
};

TrainerOptions options_of(const Recipe& recipe, const Plan& plan) {
  TrainerOptions options;
  options.steps = plan.steps;
  options.schedule = {.lr = recipe.lr, .steps = plan.total};
  options.log_every = 1;
  options.evaluate_every = recipe.is_tested ? 10 : 0;
  options.checkpoint_every = plan.save_every;
  options.identity = options.shared_identity = {{"embedding", std::to_string(recipe.embedding)}};
  return options;
}

SupervisedStepOptions step_options_of(const Recipe& recipe, const data::Dataset& dataset) {
  return {.optimizer = recipe.optimizer, .clip = recipe.clip, .num_classes = dataset.num_classes()};
}

Trained run(const Recipe& recipe, const Plan& plan) {
  const Patterns patterns;
  Trained trained;
  std::mutex mutex;
  comm::run_ranks(plan.ranks,
                  [&](comm::ProcessGroup& group) {
                    data::LoaderOptions reading = {.batch = 10, .rank = group.rank(), .size = group.size(), .seed = 1};
                    data::Loader loader(patterns, reading);
                    reading.augment = data::no_augmentation();
                    reading.shuffle = reading.drop_last = false;
                    data::Loader test(patterns, reading);
                    ClassifierTask task(recipe, group);
                    auto options = options_of(recipe, plan);
                    LossRecorder recorder;
                    options.stop_requested = [&] {
                      return plan.stop_after > 0 && group.rank() == 0 &&
                             static_cast<int64_t>(recorder.losses.size()) >= plan.stop_after;
                    };
                    parallel::Mesh mesh({.data = group.size()}, group);
                    SupervisedStep step(task, step_options_of(recipe, patterns), mesh);
                    Trainer trainer(step, loader, &test, options, plan.store, group);
                    if (plan.resume) {
                      EXPECT_TRUE(trainer.resume(*plan.store, std::nullopt));
                    }
                    const auto outcome = trainer.run(recorder);
                    const std::lock_guard lock(mutex);
                    const auto keep = [&](const std::string& name, const Tensor& tensor, bool own) {
                      if (own || group.rank() == 0)
                        trained.tensors[own ? name + std::to_string(group.rank()) : name] = tensor.detach().clone();
                    };
                    for (const auto& p : task.parameters()) keep(p.name, p.tensor, !p.placement.is_everywhere());
                    for (const auto& b : task.buffers()) keep(b.name, b.tensor, false);
                    for (const auto& s : step.state()) {
                      if (s.name.starts_with("optimizer.")) keep(s.name, s.tensor, !s.placement.is_everywhere());
                    }
                    if (group.rank() == 0) trained.losses = recorder.losses, trained.outcome = outcome;
                  },
                  {.threads = 1});
  return trained;
}

Recipe adamw(Recipe recipe) {
  recipe.optimizer.kind = OptimizerKind::adamw;
  recipe.lr = 0.01;
  return recipe;
}

/// In float64, so that the numbers of ranks can be compared.
Recipe exact(Recipe recipe) {
  recipe.head.dtype = at::kDouble;
  return recipe;
}

Recipe sampled(double rate, bool lazy) {
  Recipe recipe;
  recipe.head.sampling = classifier::Sampling{rate};
  recipe.moves_all_rows = lazy;
  return recipe;
}

void expect_same_bits(const Trained& a, const Trained& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) EXPECT_TRUE(tensor.equal(b.tensors.at(name))) << name;
}

TEST(Training, TwentyStepsHaveTheLossesOfOneDevice) {
  const Recipe cosface, softmax = {.head = {.scoring = classifier::plain_softmax()}, .clip = 1};
  int number = 0;
  for (const auto& recipe : {exact(cosface), exact(softmax), exact(adamw(cosface))}) {
    SCOPED_TRACE("recipe " + std::to_string(number++));
    const auto one = run(recipe, {.ranks = 1});
    const auto mean_of_five = [&](int first) {
      return std::accumulate(one.losses.begin() + first, one.losses.begin() + first + 5, 0.0) / 5;
    };
    EXPECT_LT(mean_of_five(15), mean_of_five(0));
    for (const int ranks : {2, 3, 4}) {
      const auto several = run(recipe, {.ranks = ranks});
      ASSERT_EQ(several.losses.size(), 20u);
      for (int step = 0; step < 20; ++step) {
        EXPECT_NEAR(several.losses[step], one.losses[step], 1e-10) << "ranks " << ranks << " step " << step;
      }
      EXPECT_DOUBLE_EQ(several.outcome.scores.value("top1"), one.outcome.scores.value("top1"));
    }
  }
}

TEST(Training, ResumingGivesTheSameBits) {
  for (const int ranks : {1, 3}) {
    const Recipe sgd = {.model = "resnet_glyph"};
    for (const auto& recipe : {sgd, adamw(sgd)}) {
      const auto whole = run(recipe, {.ranks = ranks});
      const test::TemporaryFolder folder;
      CheckpointStore store(folder.path());
      run(recipe, {.ranks = ranks, .steps = 13, .store = &store});  // in the middle of the second epoch
      const auto resumed = run(recipe, {.ranks = ranks, .store = &store, .resume = true});
      EXPECT_EQ(resumed.losses, std::vector<double>(whole.losses.begin() + 13, whole.losses.end()));
      expect_same_bits(resumed, whole);
    }
  }
}

/// The weights of all ranks together.
std::map<std::string, Tensor> whole_tensors(const Trained& trained, int ranks) {
  std::map<std::string, Tensor> whole;
  for (const auto& [name, tensor] : trained.tensors) {
    if (!name.ends_with("head.weight0")) continue;
    const auto stem = name.substr(0, name.size() - 1);
    std::vector<Tensor> parts;
    for (int rank = 0; rank < ranks; ++rank) parts.push_back(trained.tensors.at(stem + std::to_string(rank)));
    whole[stem] = at::cat(parts);
  }
  return whole;
}

/// Samples, moves rows late, and changes the number of ranks in mid-training: 4, then 3, then 1.
TEST(Training, TheCurveDoesNotDependOnRanksOrTheirChange) {
  auto fused = sampled(0.4, true);
  fused.head.sampling->is_corrected = true;
  fused.steps_in_backward = true;
  fused.optimizer.nesterov = false;
  auto arcface = adamw(sampled(0.3, false));
  arcface.head.scoring = classifier::arcface(24, 0.2);
  int number = 0;
  for (const auto& inexact : {sampled(0.5, false), sampled(0.4, true), fused, arcface}) {
    SCOPED_TRACE("recipe " + std::to_string(number++));
    const auto recipe = exact(inexact);
    const auto one = run(recipe, {.ranks = 1, .steps = 50, .total = 50});
    ASSERT_EQ(one.losses.size(), 50u);
    const auto expect_near = [&](const std::vector<double>& losses, size_t first, int ranks) {
      for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], one.losses[first + i], 1e-9) << ranks;
    };
    for (const int ranks : {2, 3, 4}) {
      expect_near(run(recipe, {.ranks = ranks, .steps = 50, .total = 50}).losses, 0, ranks);
    }
    const test::TemporaryFolder folder;
    CheckpointStore store(folder.path());
    expect_near(run(recipe, {.ranks = 4, .steps = 17, .store = &store, .total = 50}).losses, 0, 4);
    expect_near(run(recipe, {.ranks = 3, .steps = 33, .store = &store, .resume = true, .total = 50}).losses, 17, 3);
    const auto last = run(recipe, {.ranks = 1, .steps = 50, .store = &store, .resume = true, .total = 50});
    expect_near(last.losses, 33, 1);
    for (const auto& [name, tensor] : whole_tensors(last, 1)) {
      EXPECT_TRUE(at::allclose(tensor, whole_tensors(one, 1).at(name), 1e-8, 1e-10)) << name;
    }
  }
}

TEST(Training, ResumingASampledRunGivesTheSameBits) {
  auto recipe = sampled(0.4, true);
  recipe.is_tested = false;
  const test::TemporaryFolder folder;
  CheckpointStore store(folder.path()), other(folder / "other");
  run(recipe, {.ranks = 2, .steps = 13, .store = &store});
  const auto resumed = run(recipe, {.ranks = 2, .store = &store, .resume = true});
  // Saving brings all rows up to date, which rounds: a run that never saves has other last bits.
  const auto whole = run(recipe, {.ranks = 2, .store = &other, .save_every = 13});
  expect_same_bits(resumed, whole);
}

TEST(Training, OneRanksWishStopsAllAndIsSaved) {
  const test::TemporaryFolder folder;
  CheckpointStore store(folder.path());
  const auto trained = run(Recipe(), {.ranks = 3, .store = &store, .stop_after = 5});
  EXPECT_TRUE(trained.outcome.stopped);
  EXPECT_EQ(trained.outcome.steps, 5);
  EXPECT_EQ(store.list(), std::vector<int64_t>{5});
}

TEST(Training, AnotherJobsCheckpointIsPassedOver) {
  const test::TemporaryFolder folder;
  CheckpointStore store(folder.path());
  run(Recipe(), {.ranks = 1, .steps = 2, .store = &store});
  const Patterns patterns;
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    const Recipe recipe = {.embedding = 24};
    data::Loader loader(patterns, {.batch = 10});
    ClassifierTask task(recipe, group);
    parallel::Mesh mesh({.data = group.size()}, group);
    SupervisedStep step(task, step_options_of(recipe, patterns), mesh);
    Trainer trainer(step, loader, nullptr, options_of(recipe, {}), nullptr, group);
    testing::internal::CaptureStderr();
    EXPECT_FALSE(trainer.resume(store, std::nullopt));
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "warning: checkpoint step_00000002 is of another job: embedding is 16, wanted 24\n");
  });
}

TEST(Training, ALossThatIsNotFiniteEndsTheRunOnAllRanks) {
  auto recipe = exact({.head = {.scoring = classifier::plain_softmax()}});
  recipe.lr = 1e300;
  std::string text;
  try {
    run(recipe, {.ranks = 2});
  } catch (const NonFiniteError& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("wanted a finite number (rank "), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem::train
