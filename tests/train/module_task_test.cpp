#include "tandem/train/module_task.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules.h>
#include <torch/optim/sgd.h>

#include <mutex>

#include "tandem/base/seed_scope.h"
#include "tandem/comm/world.h"
#include "tandem/train/supervised_step.h"
#include "tandem/train/trainer.h"
#include "tandem/train/weights_file.h"
#include "tests/data/patterns.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::train {
namespace {

using test::Patterns;
using test::text_of;

constexpr int64_t kClasses = 11, kSteps = 6;
constexpr double kRate = 0.05;

struct NetImpl : torch::nn::Module {
  NetImpl() : conv(1, 3, 3), linear(3 * 6 * 6, kClasses) {
    register_module("conv", conv);
    register_module("linear", linear);
    to(at::kDouble);
  }
  Tensor forward(const Tensor& x) { return linear(conv(x).tanh().flatten(1)); }
  torch::nn::Conv2d conv;
  torch::nn::Linear linear;
};

std::shared_ptr<NetImpl> make_net() {
  const SeedScope seed(3);
  return std::make_shared<NetImpl>();
}

Tensor mean_loss(const Tensor& scores, const Tensor& labels) { return at::cross_entropy_loss(scores, labels); }

/// 100 samples in batches of 33: the last batch has one, so that ranks have none.
data::LoaderOptions options_of(int rank, int size) {
  return {.batch = 33, .rank = rank, .size = size, .drop_last = false};
}

struct Form {
  std::string parallel = "ddp";
  int ranks = 1;
  int64_t accumulate = 1;
  bool in_blocks = false;
};

struct Trained {
  std::vector<double> losses;
  Scores scores;
};

ModuleTask task_of(const Form& form) {
  if (!form.in_blocks) return ModuleTask(make_net(), mean_loss);
  const auto net = make_net();
  memory::Chain chain{
      {memory::make_block("conv", {net->conv.ptr()}, [net](const Tensor& x) { return net->conv(x).tanh(); }),
       memory::make_block("linear", {net->linear.ptr()},
                          [net](const Tensor& x) { return net->linear(x.flatten(1)); })}};
  return ModuleTask(net, chain, mean_loss);
}

Trained train(const Form& form) {
  const Patterns patterns;
  const auto& strategy = parallel::strategy_of(form.parallel);
  Trained trained;
  std::mutex mutex;
  comm::run_ranks(form.ranks,
                  [&](comm::ProcessGroup& group) {
                    data::Loader loader(patterns, options_of(group.rank(), group.size()));
                    auto task = task_of(form);
                    parallel::Mesh mesh(strategy.mesh(group.size(), {}), group);
                    SupervisedStep step(
                        task, {.accumulate = form.accumulate, .num_classes = kClasses, .strategy = &strategy}, mesh);
                    std::vector<double> losses;
                    data::Batch batch;
                    for (int64_t i = 0; i < kSteps; ++i) {
                      if (i % 4 == 0) loader.start(i / 4);
                      ASSERT_TRUE(loader.next(batch));
                      losses.push_back(step.run(batch, i, kRate)->loss.value());
                    }
                    step.unify();
                    const auto scores = step.evaluate(loader, {}, {});
                    const std::lock_guard lock(mutex);
                    if (group.rank() == form.ranks - 1) trained = {losses, scores};
                  },
                  {.threads = 1});
  return trained;
}

/// libtorch alone, with the whole batch.
std::vector<double> plain_losses() {
  const Patterns patterns;
  data::Loader loader(patterns, options_of(0, 1));
  const auto net = make_net();
  torch::optim::SGD optimizer(net->parameters(),
                              torch::optim::SGDOptions(kRate).momentum(0.9).nesterov(true).weight_decay(5e-4));
  std::vector<double> losses;
  data::Batch batch;
  for (int64_t i = 0; i < kSteps; ++i) {
    if (i % 4 == 0) loader.start(i / 4);
    loader.next(batch);
    optimizer.zero_grad();
    auto loss = mean_loss(net->forward(batch.images.to(at::kDouble)), batch.labels);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

void expect_near(const Trained& found, const Trained& wanted, const std::string& what) {
  ASSERT_EQ(found.losses.size(), wanted.losses.size()) << what;
  for (size_t i = 0; i < wanted.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], wanted.losses[i], 1e-12 * wanted.losses[i]) << what << ", step " << i;
  ASSERT_EQ(found.scores.samples, 100) << what;
  for (const auto& score : wanted.scores.list)
    EXPECT_NEAR(found.scores.value(score.name), score.value, 1e-12) << what << ", " << score.name;
}

TEST(ModuleTask, OneRankIsAPlainLoopOfLibtorch) {
  const auto found = train({}).losses, wanted = plain_losses();
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-12 * wanted[i]) << i;
}

TEST(ModuleTask, EveryStrategyIsOneRankToTwelveDigits) {
  const auto wanted = train({});
  for (const std::string parallel : {"ddp", "zero1", "zero2", "fsdp", "ps"}) {
    for (int ranks = 1; ranks <= 4; ++ranks)
      expect_near(train({parallel, ranks}), wanted, parallel + " on " + std::to_string(ranks));
  }
}

TEST(ModuleTask, BlocksAndMicroBatchesAreTheWhole) {
  const auto wanted = train({});
  expect_near(train({"ddp", 3, 4}), wanted, "micro-batches");
  expect_near(train({"fsdp", 3, 2, true}), wanted, "blocks, split");
}

TEST(ModuleTask, AnswersWithTheBestClassesAndTheirSoftmax) {
  const auto net = make_net();
  ModuleTask task(net, mean_loss);
  const data::Batch batch{at::rand({5, 1, 8, 8}), at::tensor({0, 10, 3, 3, 7}, at::kLong), 5};
  const std::vector<int64_t> sizes = {5};
  const auto scores = net->forward(batch.images.to(at::kDouble)).detach();
  const auto [best, loss, none] = task.evaluate(batch, 4, sizes);
  const auto [wanted, classes] = scores.softmax(1).topk(4, 1);
  EXPECT_TRUE(best.classes.equal(classes));
  EXPECT_TRUE(best.scores.allclose(wanted.to(at::kFloat)));
  EXPECT_TRUE(loss.equal(mean_loss(scores, batch.labels)));
  EXPECT_TRUE(task.predict(batch, 4, sizes).classes.equal(classes));
  const auto features = task.embed(batch);
  EXPECT_TRUE(features.equal(scores));
  EXPECT_FALSE(features.requires_grad());
  task.set_training(false);
  EXPECT_FALSE(net->is_training());
}

TEST(ModuleTask, ItsCheckpointFillsAModule) {
  const test::TemporaryFolder folder;
  const auto trained = make_net();
  const Patterns patterns;
  const auto group = comm::make_single_group();
  parallel::Mesh mesh({}, *group);
  ModuleTask task(trained, mean_loss);
  SupervisedStep step(task, {.num_classes = kClasses}, mesh);
  data::Loader loader(patterns, options_of(0, 1));
  const auto checkpoints = folder.path() / "checkpoints";
  CheckpointStore store(checkpoints);
  Trainer trainer(step, loader, nullptr, {.steps = 3, .schedule = {.lr = kRate, .steps = 3}}, &store, *group);
  Observer quiet;
  trainer.run(quiet);
  for (const auto& path : {folder.path(), checkpoints, store.path(3)}) {
    const auto net = make_net();
    load_weights(path, parameters_of(*net));
    EXPECT_TRUE(net->conv->weight.equal(trained->conv->weight)) << path;
    EXPECT_TRUE(net->linear->bias.equal(trained->linear->bias)) << path;
  }
}

TEST(ModuleTask, SaysWhatIsWrong) {
  const std::vector<int64_t> sizes = {2};
  const auto fault = [&](const auto& module, const ModuleTask::Loss& loss, int64_t label) {
    ModuleTask task(module, loss);
    const data::Batch batch{at::zeros({2, 1, 8, 8}), at::tensor({0L, label}), 2};
    return text_of([&] { task.loss(batch, sizes); });
  };
  const torch::nn::Sequential no_rows(torch::nn::Conv2d(1, 3, 3));
  EXPECT_EQ(fault(no_rows.ptr(), mean_loss, 0),
            "module gives [2, 3, 6, 6] for 2 images, wanted a row of scores for each: [2, classes]");
  EXPECT_EQ(fault(
                make_net(), [](const Tensor& scores, const Tensor&) { return scores.sum(1); }, 0),
            "loss gives [2], wanted one number, the mean over the samples: []");
  for (const int64_t label : {-1, 11}) {
    EXPECT_EQ(fault(make_net(), mean_loss, label), "label of a sample is " + std::to_string(label) +
                                                       ", wanted 0..10, as the module gives 11 scores: correct "
                                                       "the data set's labels, or give the module more scores");
  }
  ModuleTask task(make_net(), mean_loss);
  const data::Batch batch{at::zeros({2, 1, 8, 8}), at::zeros({2}, at::kLong), 2};
  EXPECT_EQ(text_of([&] { task.evaluate(batch, 12, sizes); }),
            "module gives 11 scores, wanted at least the 12 that are asked for: as many as num_classes");
}

TEST(Evaluate, WantsTheNumberOfClasses) {
  const Patterns patterns;
  data::Loader loader(patterns, options_of(0, 1));
  const auto group = comm::make_single_group();
  parallel::Mesh mesh({}, *group);
  ModuleTask task(make_net(), mean_loss);
  SupervisedStep step(task, {}, mesh);
  EXPECT_EQ(text_of([&] { step.evaluate(loader, {}, {}); }), "evaluate: num_classes is 0, wanted 1 or more");
}

}  // namespace
}  // namespace tandem::train
