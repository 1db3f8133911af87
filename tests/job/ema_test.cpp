#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tandem/train/checkpoint_reader.h"
#include "tandem/train/reshard.h"
#include "tandem/train/weights_file.h"
#include "tests/job/step_peaks.h"
#include "tests/job/whole_run.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

// train.ema: the trained model is an average of the weights.
namespace tandem::job {
namespace {

constexpr double kEma = 0.7;

const Words kSmall = {"model=mlp",     "train.batch=23",          "embedding=16",
                      "train.lr=0.05", "train.precision=float64", "eval.every=1"};
const Words kAveraged = with(kSmall, {"train.ema=0.7"});

using Tensors = std::map<std::string, Tensor>;

Tensors copies_of(const std::vector<train::Parameter>& parameters) {
  Tensors copies;
  for (const auto& [name, tensor, placement] : parameters) copies[name] = tensor.detach().clone();
  return copies;
}

/// Follows the weights of a rank that holds them whole.
struct Follower : train::Observer {
  explicit Follower(const train::Step& of) : step(of), averages(copies_of(of.weights())) {}

  void on_step(int64_t, int64_t, double, std::optional<double>) override {
    weights = copies_of(step.weights());
    for (auto& [name, average] : averages) {
      const bool is_buffer = !average.is_floating_point() || name.find("running_") != name.npos;
      average = is_buffer ? weights[name] : average + (1 - kEma) * (weights[name] - average);
    }
  }

  const train::Step& step;
  Tensors averages, weights;
};

struct Averaged {
  Tensors averages, weights;
};

/// After `steps` steps of one rank without train.ema.
Averaged oracle(const Words& words, int64_t steps) {
  Averaged result;
  const auto job = job_of(with(words, {"train.steps=" + std::to_string(steps)}));
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    const Patterns patterns;
    const auto loader = training_loader(job, patterns, group);
    const auto parts = assemble(job, shape_of(job, patterns), group);
    auto options = trainer_options(job, loader->batches_per_epoch());
    options.schedule.steps = 12;  // as whole_run() has it
    train::Trainer trainer(*parts.step, *loader, nullptr, options, nullptr, group);
    Follower follower(*parts.step);
    trainer.run(follower);
    result = {follower.averages, follower.weights};
  });
  return result;
}

/// What the newest checkpoint holds.
Averaged saved_in(const std::filesystem::path& folder) {
  const train::CheckpointStore store(folder);
  const train::CheckpointReader reader(store, store.list().front());
  const std::string before = "optimizer.weight.";
  Averaged result;
  for (const auto& name : reader.names()) {
    if (name.starts_with(before)) result.weights[name.substr(before.size())] = reader.read(name);
    if (!train::is_state_name(name)) result.averages[name] = reader.read(name);
  }
  return result;
}

void expect_close(const Tensors& found, const Tensors& expected) {
  for (const auto& [name, tensor] : found) {
    ASSERT_TRUE(expected.contains(name)) << name;
    EXPECT_TRUE(at::allclose(tensor, expected.at(name), 1e-11, 1e-12)) << name;
  }
}

std::vector<Words> strategies(int ranks) {
  std::vector<Words> all = {{"parallel=ddp"},
                            {"parallel=ddp", "head.parallel=replicated", "train.accumulate=2"},
                            {"parallel=zero1"},
                            {"parallel=zero2"},
                            {"parallel=fsdp"},
                            {"parallel=ps"},
                            {"parallel=ps", "ps.update=server"},
                            {"parallel=local-sgd", "local_sgd.every=1"},
                            {"parallel=diloco", "diloco.every=1", "diloco.lr=1", "diloco.momentum=0"}};
  if (ranks > 1) all.push_back({"parallel=ps", "ps.servers=1"});
  if (ranks > 1) all.push_back({"parallel=ps", "ps.servers=1", "ps.update=server"});
  if (ranks % 2 == 0) all.push_back({"parallel=fsdp", "mesh.shard=2"});
  return all;
}

/// Also those whose ranks train apart: one rank has other weights.
std::vector<Words> all_strategies(int ranks) {
  auto all = strategies(ranks);
  all.push_back({"parallel=local-sgd", "local_sgd.every=3"});
  all.push_back({"parallel=diloco", "diloco.every=3"});
  if (ranks > 1) all.push_back({"ddp.hook=post-local-sgd", "ddp.local_start=2", "ddp.local_every=3"});
  return all;
}

TEST(Ema, TheTrainedModelIsTheAverageUnderEachStrategy) {
  const auto expected = oracle(kSmall, 6);
  for (const int ranks : {1, 2, 3, 4}) {
    for (const auto& strategy : strategies(ranks)) {
      const auto words = with(with(kAveraged, {"ranks=" + std::to_string(ranks)}), strategy);
      SCOPED_TRACE(testing::PrintToString(words));
      const test::TemporaryFolder folder;
      whole_run(words, 6, folder.path() / "store");
      const auto found = saved_in(folder.path() / "store");
      EXPECT_EQ(found.averages.size(), expected.averages.size());
      EXPECT_GT(found.weights.size(), 4U);
      expect_close(found.averages, expected.averages);
      expect_close(found.weights, expected.weights);
    }
  }
}

TEST(Ema, OfWeightsThatAreDividedAlongTensor) {
  const Words pixels = {"model=none", "embedding=64"};
  const auto expected = oracle(with(kSmall, pixels), 5);
  for (const Words& more :
       std::vector<Words>{{"ranks=3", "parallel=tensor"}, {"ranks=4", "mesh.tensor=2", "head.over=data"}}) {
    SCOPED_TRACE(testing::PrintToString(more));
    const test::TemporaryFolder folder;
    whole_run(with(with(kAveraged, pixels), more), 5, folder.path() / "store");
    expect_close(saved_in(folder.path() / "store").averages, expected.averages);
  }
}

TEST(Ema, OfWeightsThatAreUpdatedByRows) {
  for (const Words& more :
       std::vector<Words>{{"head.fused_update=true"}, {"head.sample=0.5"}, {"model=resnet_glyph"}}) {
    const auto expected = oracle(with(kSmall, more), 5);
    const test::TemporaryFolder folder;
    whole_run(with(kAveraged, more), 5, folder.path() / "store");
    expect_close(saved_in(folder.path() / "store").averages, expected.averages);
  }
}

/// Nor do the tests, which use the averages.
TEST(Ema, TheLossesOfTrainingAreAsWithout) {
  for (const int ranks : {1, 3}) {
    for (auto strategy : all_strategies(ranks)) {
      strategy.push_back("ranks=" + std::to_string(ranks));
      for (const std::string more : {"model=mlp", "model=resnet_glyph"}) {
        SCOPED_TRACE(testing::PrintToString(strategy) + more);
        const auto words = with(strategy, {more});
        EXPECT_EQ(whole_run(with(kAveraged, words), 9).losses, whole_run(with(kSmall, words), 9).losses);
      }
    }
  }
}

TEST(Ema, TestsAreOfTheAverages) {
  for (const std::string model : {"model=mlp", "model=resnet_glyph"}) {
    for (const auto& strategy : all_strategies(2)) {
      const auto words = with(with(kAveraged, {"ranks=2", model}), strategy);
      SCOPED_TRACE(testing::PrintToString(words));
      const test::TemporaryFolder folder;
      const auto run = whole_run(words, 6, folder.path() / "store");
      const auto scores = scores_of(with(kAveraged, {model}), folder.path() / "store");
      EXPECT_NEAR(run.test_loss, scores.value("loss"), 1e-11);
      EXPECT_EQ(run.top1, scores.value("top1"));
    }
  }
}

TEST(Ema, AResumedRunHasTheSameBits) {
  for (const auto& strategy : all_strategies(2)) {
    const auto words = with(with(kAveraged, {"ranks=2"}), strategy);
    SCOPED_TRACE(testing::PrintToString(words));
    const test::TemporaryFolder folder;
    const auto whole = whole_run(words, 9);
    whole_run(words, 4, folder.path() / "store");  // where a test makes the ranks equal, as a save does
    EXPECT_EQ(whole_run(words, 9, folder.path() / "store").state, whole.state);
  }
}

/// From rank to rank, and from strategy to strategy.
TEST(Ema, ARunGoesOnWithAnyNumberOfRanks) {
  const auto expected = oracle(kSmall, 10);
  const std::vector<Words> course = {{"ranks=2"},
                                     {"ranks=3", "parallel=zero1"},
                                     {"ranks=1"},
                                     {"ranks=4", "parallel=fsdp"},
                                     {"ranks=3", "parallel=ps", "ps.servers=1", "ps.update=server"}};
  const test::TemporaryFolder folder;
  for (size_t i = 0; i < course.size(); ++i) {
    whole_run(with(kAveraged, course[i]), static_cast<int64_t>(2 * i + 2), folder.path() / "store");
  }
  const auto found = saved_in(folder.path() / "store");
  expect_close(found.averages, expected.averages);
  expect_close(found.weights, expected.weights);
}

TEST(Ema, WithShardsTheNumberOfRanksChangesNoBit) {
  const Words words = {"model=mlp", "train.shards=4", "train.batch=21", "train.ema=0.9", "train.lr=0.05"};
  const auto one = whole_run(words, 5);
  for (const std::string ranks : {"ranks=2", "ranks=4"}) {
    for (const std::string strategy : {"parallel=ddp", "parallel=fsdp"}) {
      const auto many = whole_run(with(words, {ranks, strategy}), 5);
      EXPECT_EQ(many.hash, one.hash) << ranks << strategy;
      EXPECT_EQ(many.state, one.state) << ranks << strategy;
    }
  }
}

TEST(Ema, AMergedFileHoldsTheAverages) {
  const test::TemporaryFolder folder;
  whole_run(with(kAveraged, {"ranks=2", "parallel=fsdp"}), 3, folder.path() / "store");
  const train::CheckpointStore store(folder.path() / "store");
  train::merge_weights(train::CheckpointReader(store, 3), folder / "merged.safetensors");
  const auto merged = train::open_weights(folder / "merged.safetensors");
  const auto expected = saved_in(folder.path() / "store");
  EXPECT_EQ(merged.names().size(), expected.averages.size());
  for (const auto& name : merged.names()) EXPECT_TRUE(merged.read(name).equal(expected.averages.at(name))) << name;
}

TEST(Ema, FrozenWeightsHaveNoAverage) {
  const test::TemporaryFolder folder;
  whole_run(with(kAveraged, {"model.freeze=fc1", "ranks=2", "parallel=zero1"}), 3, folder.path() / "store");
  const auto found = saved_in(folder.path() / "store");
  expect_close(found.averages, oracle(with(kSmall, {"model.freeze=fc1"}), 3).averages);
  for (const auto& [name, tensor] : found.weights) EXPECT_FALSE(name.starts_with("fc1")) << name;
}

TEST(Ema, ItsMemoryIsPredicted) {
  for (const std::string model : {"mlp", "resnet_glyph"}) {
    for (const Words& more : std::vector<Words>{{},
                                                {"ranks=3"},
                                                {"ranks=3", "parallel=zero1"},
                                                {"ranks=3", "parallel=zero2"},
                                                {"ranks=3", "parallel=fsdp"},
                                                {"ranks=3", "parallel=ps", "ps.servers=1", "ps.update=server"},
                                                {"ranks=3", "parallel=local-sgd", "train.optimizer=adamw"},
                                                {"ranks=2", "head.fused_update=true", "train.precision=float64"}}) {
      const auto words = with({"model=" + model, "train.batch=23", "head.classes=301", "train.ema=0.99"}, more);
      SCOPED_TRACE(testing::PrintToString(words));
      for (const auto& [predicted, measured] : peaks_of(words)) EXPECT_EQ(predicted, measured);
    }
  }
}

TEST(Ema, ACheckpointWithoutAveragesIsOfAnotherJob) {
  const Patterns patterns;
  const auto has_key = [&](const Words& words) {
    const auto found = identity(job_of(words), patterns);
    return std::ranges::count(found, "train.ema", &storage::Identity::value_type::first) == 1;
  };
  EXPECT_TRUE(has_key(kAveraged));
  EXPECT_FALSE(has_key(kSmall));  // an old checkpoint does not know the setting
}

TEST(Ema, AveragesAreNotTakenForWeights) {
  const test::TemporaryFolder folder;
  whole_run(kAveraged, 2, folder.path() / "store");
  EXPECT_EQ(test::text_of<SettingsError>([&] { whole_run(kSmall, 4, folder.path() / "store"); }),
            "ema is 0 with a checkpoint of averages, wanted 0.700000 as there: to train on from the averages, start "
            "another run with them as its weights");
}

TEST(Ema, ADecayIsLessThanOne) {
  EXPECT_EQ(test::text_of<SettingsError>([&] { job_of({"train.ema=1"}); }),
            "train.ema is 1, wanted 0 or more, less than 1");
  auto job = job_of(kSmall);
  job.training.ema = 1.5;
  const auto group = comm::make_single_group();
  EXPECT_EQ(test::text_of<SettingsError>([&] { assemble(job, shape_of(job, Patterns()), *group); }),
            "ema is 1.500000, wanted 0 or more and less than 1");
  job = job_of(with(kSmall, {"head.sample=0.5", "head.lazy=exact"}));
  job.training.ema = 0.5;
  EXPECT_EQ(test::text_of<SettingsError>([&] { assemble(job, shape_of(job, Patterns()), *group); }),
            "ema is 0.500000 with rows that are updated late: leave ema out, or update all rows in each step");
}

}  // namespace
}  // namespace tandem::job
