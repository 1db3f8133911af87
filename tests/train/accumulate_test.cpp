#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tandem/train/micro_batches.h"
#include "tests/support/text_of.h"
#include "tests/train/classifier_task.h"
#include "tests/train/loss_recorder.h"

namespace tandem::train {
namespace {

constexpr int64_t kBatch = 23, kSteps = 8;

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<Tensor>> weights;  // parts in rank order; of a replicated one rank 0's
};

TrainerOptions loop_options() {
  TrainerOptions options;
  options.steps = kSteps;
  options.schedule = {.kind = ScheduleKind::constant, .lr = 0.05, .steps = kSteps, .warmup = 0};
  options.log_every = 1;
  return options;
}

Trained run(const Recipe& recipe, int ranks, int64_t accumulate) {
  const Patterns patterns;
  Trained trained;
  std::mutex mutex;
  std::vector<std::vector<Parameter>> weights(ranks);
  comm::run_ranks(ranks,
                  [&](comm::ProcessGroup& group) {
                    data::Loader loader(patterns, {.batch = kBatch, .rank = group.rank(), .size = group.size()});
                    ClassifierTask task(recipe, group);
                    parallel::Mesh mesh({.data = group.size()}, group);
                    SupervisedStep step(task, {.clip = recipe.clip, .accumulate = accumulate, .num_classes = 11}, mesh);
                    Trainer trainer(step, loader, nullptr, loop_options(), nullptr, group);
                    LossRecorder recorder;
                    trainer.run(recorder);
                    const std::lock_guard lock(mutex);
                    weights[group.rank()] = task.parameters();
                    if (group.rank() == 0) trained.losses = recorder.losses;
                  },
                  {.threads = 1});
  for (const auto& own : weights) {
    for (const auto& one : own) {
      auto& parts = trained.weights[one.name];
      if (!one.placement.is_everywhere() || parts.empty()) parts.push_back(one.tensor.detach());
    }
  }
  return trained;
}

void expect_equal(const Trained& found, const Trained& expected, const std::string& where) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (size_t i = 0; i < found.losses.size(); ++i) EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-12) << where;
  for (const auto& [name, parts] : expected.weights) {
    const auto difference = (at::cat(found.weights.at(name)) - at::cat(parts)).abs().max().item<double>();
    EXPECT_LE(difference, 1e-12) << name << where;
  }
}

TEST(Accumulate, MicroBatchesGiveTheStepOfTheWholeBatch) {
  Recipe cosface, clipped = {.head = {.scoring = classifier::plain_softmax()}, .clip = 1}, naive = clipped;
  naive.head.naive = true;
  int number = 0;
  for (auto recipe : {cosface, clipped, naive}) {
    recipe.head.dtype = at::kDouble;
    const auto whole = run(recipe, 1, 1);
    for (const int ranks : {1, 2, 3, 4, 5}) {
      for (const int64_t parts : {2, 3, 5, 7}) {  // 5 ranks have 5 or 4 samples: some micro-batches are empty there
        expect_equal(run(recipe, ranks, parts), whole,
                     " recipe " + std::to_string(number) + " ranks " + std::to_string(ranks) + " parts " +
                         std::to_string(parts));
      }
    }
    ++number;
  }
}

TEST(Accumulate, ABatchIsCutOnEachRank) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const int64_t own = group.rank() == 0 ? 8 : 7;
    const data::Batch batch = {at::arange(own).reshape({own, 1, 1, 1}), at::arange(own), 15, group.rank() * 8 + 100};
    const auto parts = cut(batch, 3, {8, 7}, group.rank());
    ASSERT_EQ(parts.size(), 3u);
    EXPECT_EQ(parts[0].sizes, (std::vector<int64_t>{3, 3}));
    EXPECT_EQ(parts[1].sizes, (std::vector<int64_t>{3, 2}));
    EXPECT_EQ(parts[2].sizes, (std::vector<int64_t>{2, 2}));
    EXPECT_EQ(parts[1].batch.global_size, 5);
    EXPECT_EQ(parts[1].batch.first_sample, group.rank() * 8 + 103);
    EXPECT_TRUE(parts[1].batch.labels.equal(batch.labels.slice(0, 3, group.rank() == 0 ? 6 : 5)));
    EXPECT_DOUBLE_EQ(parts[2].shares[0], 4.0 / 15);
    EXPECT_TRUE(parts[0].place.is_first() && parts[2].place.is_last() && !parts[1].place.is_last());
    EXPECT_EQ(cut(batch, 100, {8, 7}, group.rank()).size(), 8u);  // none is empty on both ranks
  });
}

/// Peak bytes of the activations and the gradients of the training steps.
std::pair<int64_t, int64_t> peaks(int64_t batch, int64_t accumulate) {
  memory::install_meter();
  const Patterns patterns;
  std::pair<int64_t, int64_t> result;
  comm::run_ranks(2,
                  [&](comm::ProcessGroup& group) {
                    const RankScope scope(group.rank());
                    data::Loader loader(patterns, {.batch = batch, .rank = group.rank(), .size = group.size()});
                    ClassifierTask task({.model = "resnet_glyph"}, group);
                    parallel::Mesh mesh({.data = group.size()}, group);
                    SupervisedStep step(task, {.accumulate = accumulate, .num_classes = 11}, mesh);
                    Trainer trainer(step, loader, nullptr, loop_options(), nullptr, group);
                    Observer nobody;
                    const auto at_peak = trainer.run(nobody).memory.at_peak;
                    if (group.rank() > 0) return;
                    result = {at_peak[static_cast<size_t>(Category::activations)],
                              at_peak[static_cast<size_t>(Category::gradients)]};
                  },
                  {.threads = 1});
  return result;
}

TEST(Accumulate, AStepHoldsTheActivationsOfOneMicroBatchAndNoSecondGradient) {
  const auto [whole, whole_gradients] = peaks(24, 1);
  const auto [small, small_gradients] = peaks(8, 1);
  const auto [cut, cut_gradients] = peaks(24, 3);
  EXPECT_LT(small, whole);
  EXPECT_EQ(cut, small) << whole;
  EXPECT_EQ(cut_gradients, small_gradients) << whole_gradients;
}

TEST(Accumulate, AParameterThatIsSteppedByRowsIsRefused) {
  Recipe recipe;
  recipe.steps_in_backward = true;
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    ClassifierTask task(recipe, group);
    parallel::Mesh mesh({.data = group.size()}, group);
    EXPECT_EQ(test::text_of<SettingsError>([&] { SupervisedStep(task, {.accumulate = 2}, mesh); }),
              "accumulate is 2 with a parameter that is updated before all micro-batches are known: leave accumulate "
              "out, or update that parameter with the others");
  });
}

}  // namespace
}  // namespace tandem::train
