#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "tandem/comm/world.h"
#include "tandem/train/weights_hash.h"
#include "tests/support/files.h"
#include "tests/train/classifier_task.h"

namespace tandem::train {
namespace {

struct Form {
  std::string parallel;
  int ranks = 1, shard = 0;  // FullyShardOptions::shard
};

/// The head's type decides that of the whole model.
Recipe recipe_of(const std::string& model, OptimizerKind kind = OptimizerKind::sgd) {
  return {.model = model,
          .head = {.scoring = classifier::cosface(24, 0.2), .dtype = at::kDouble},
          .optimizer = {.kind = kind}};
}

/// Adds infinity to the first gradient of one step, on the last rank.
class FaultyOnce : public ClassifierTask {
 public:
  FaultyOnce(const Recipe& recipe, comm::ProcessGroup& group, int64_t step) : ClassifierTask(recipe, group) {
    if (group.rank() + 1 < group.size()) return;
    parameters()[0].tensor.register_hook(
        [this, step](const Tensor& gradient) { return now_ == step ? gradient / 0.0 : gradient; });
  }

  void begin_step(int64_t step) override {
    ClassifierTask::begin_step(step);
    now_ = step;
  }

 private:
  int64_t now_ = -1;
};

struct Trained {
  std::vector<double> losses;  // NaN: skipped
  std::string hash;            // of the whole state
};

struct Course {
  int64_t steps = 6, accumulate = 1;
  double clip = 0;
  int64_t faulty_step = -1;
  CheckpointStore* saves = nullptr;
  const CheckpointStore* loads = nullptr;
};

Trained train(const Recipe& recipe, const Form& form, const Course& run = {}) {
  const Patterns patterns;
  const auto& strategy = parallel::strategy_of(form.parallel);
  const parallel::StrategyOptions options{.fsdp = {.shard = form.shard}};
  Trained trained;
  std::mutex mutex;
  comm::run_ranks(form.ranks,
                  [&](comm::ProcessGroup& group) {
                    data::Loader loader(patterns, {.batch = 23, .rank = group.rank(), .size = group.size()});
                    FaultyOnce task(recipe, group, run.faulty_step);
                    parallel::Mesh mesh(strategy.mesh(group.size(), options), group);
                    SupervisedStep step(task,
                                        {.optimizer = recipe.optimizer,
                                         .clip = run.clip,
                                         .accumulate = run.accumulate,
                                         .num_classes = 11,
                                         .strategy = &strategy,
                                         .strategy_options = options},
                                        mesh);
                    if (run.faulty_step >= 0) step.allow_skips(1);
                    TrainingState state;
                    state.tensors = step.state();
                    if (run.loads != nullptr) {
                      EXPECT_TRUE(load_checkpoint(*run.loads, state, {}, group));
                    }
                    std::vector<double> losses;
                    data::Batch batch;
                    for (int64_t i = 0; i < run.steps; ++i) {
                      if (i % 4 == 0) loader.start(i / 4);
                      if (!loader.next(batch)) break;
                      const auto reading = *step.run(batch, i, 0.05);
                      losses.push_back(reading.loss.value_or(std::numeric_limits<double>::quiet_NaN()));
                    }
                    step.unify();
                    const auto hash = weights_hash(step.state(), group);
                    if (run.saves != nullptr) save_checkpoint(*run.saves, 1, state, group);
                    const std::lock_guard lock(mutex);
                    if (group.rank() == 0) trained = {losses, hash};
                  },
                  {.threads = 1});
  return trained;
}

constexpr double kClose = 1e-11;  // of a loss: AdamW divides by small numbers

std::string text_of(const Form& form) { return form.parallel + " on " + std::to_string(form.ranks) + " ranks"; }

void expect_losses(const Trained& one, const Trained& other, const std::string& what) {
  ASSERT_EQ(one.losses.size(), other.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i)
    EXPECT_NEAR(one.losses[i], other.losses[i], kClose * other.losses[i]) << what << ' ' << i;
}

constexpr std::array kSharded = {"zero1", "zero2", "fsdp"};

/// Sums over the ranks are in rank order everywhere, and the update of a number does not depend on its place.
TEST(ShardedStep, HasTheBitsOfDataParallelism) {
  for (const std::string model : {"mlp", "resnet_glyph"}) {
    for (const auto kind : {OptimizerKind::sgd, OptimizerKind::adamw}) {
      const auto recipe = recipe_of(model, kind);
      for (const int ranks : {2, 3}) {
        const auto expected = train(recipe, {"ddp", ranks});
        for (const std::string parallel : kSharded) {
          const auto found = train(recipe, {parallel, ranks});
          EXPECT_EQ(found.losses, expected.losses) << model << ' ' << parallel << ' ' << ranks;
          EXPECT_EQ(found.hash, expected.hash) << model << ' ' << parallel << ' ' << ranks;
        }
      }
    }
  }
}

TEST(ShardedStep, ClipsAndAccumulatesAsOneRank) {
  const auto recipe = recipe_of("mlp");
  const Course run{.accumulate = 3, .clip = 0.5};
  const auto expected = train(recipe, {"ddp", 1}, run);
  EXPECT_GT(std::abs(train(recipe, {"ddp", 1}).losses.back() - expected.losses.back()), 1e-3) << "nothing is clipped";
  for (const std::string parallel : kSharded) {
    for (const int ranks : {2, 4}) {
      const Form form{parallel, ranks, parallel == "fsdp" && ranks == 4 ? 2 : 0};
      expect_losses(train(recipe, form, run), expected, text_of(form));
    }
  }
}

/// A step that is skipped leaves weights, momentum and step counts as they were, and the next one is good.
TEST(ShardedStep, ASkippedStepChangesNothing) {
  const auto recipe = recipe_of("resnet_glyph", OptimizerKind::adamw);
  for (const int64_t accumulate : {1, 2}) {
    const auto next = train(recipe, {"ddp", 3}, {.steps = 3, .accumulate = accumulate, .faulty_step = 1});
    for (const std::string parallel : kSharded) {
      const auto before = train(recipe, {parallel, 3}, {.steps = 1, .accumulate = accumulate});
      const auto after = train(recipe, {parallel, 3}, {.steps = 2, .accumulate = accumulate, .faulty_step = 1});
      EXPECT_EQ(after.hash, before.hash) << parallel;
      EXPECT_TRUE(std::isnan(after.losses.at(1))) << parallel;
      const auto found = train(recipe, {parallel, 3}, {.steps = 3, .accumulate = accumulate, .faulty_step = 1});
      EXPECT_NEAR(found.losses.at(2), next.losses.at(2), kClose * next.losses[2]) << parallel;
    }
  }
}

/// What any form has written, any other reads bit for bit.
TEST(ShardedStep, AnyFormReadsTheCheckpointOfAnyOther) {
  const std::vector<Form> forms = {{"ddp", 2}, {"zero1", 3}, {"fsdp", 3}, {"fsdp", 4, 2}};
  const auto recipe = recipe_of("resnet_glyph", OptimizerKind::adamw);
  for (const auto& writer : forms) {
    const test::TemporaryFolder folder;
    CheckpointStore store(folder.path());
    const auto written = train(recipe, writer, {.steps = 2, .saves = &store});
    for (const auto& reader : forms) {
      EXPECT_EQ(train(recipe, reader, {.steps = 0, .loads = &store}).hash, written.hash)
          << text_of(writer) << " to " << text_of(reader);
    }
  }
}

/// The whole weights follow the parts that have been read.
TEST(ShardedStep, AnyFormGoesOnFromACheckpoint) {
  const auto recipe = recipe_of("mlp", OptimizerKind::adamw);
  const test::TemporaryFolder folder;
  CheckpointStore store(folder.path());
  train(recipe, {"fsdp", 3}, {.steps = 2, .saves = &store});
  const auto expected = train(recipe, {"ddp", 1}, {.steps = 3, .loads = &store});
  EXPECT_GT(std::abs(train(recipe, {"ddp", 1}, {.steps = 3}).losses[0] - expected.losses[0]), 1e-3);
  for (const Form& form : {Form{"zero1", 3}, {"zero2", 2}, {"fsdp", 4}, {"fsdp", 4, 2}}) {
    expect_losses(train(recipe, form, {.steps = 3, .loads = &store}), expected, text_of(form));
  }
}

}  // namespace
}  // namespace tandem::train
