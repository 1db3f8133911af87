#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/rng.h"
#include "tandem/cli/job.h"
#include "tandem/cli/job_schema.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"

namespace tandem::cli {
namespace {

constexpr int64_t kSide = 8, kClasses = 11, kImages = 100;

/// Noise with a pattern a class: learnable, and made of nothing but its index.
class Patterns : public data::Dataset {
 public:
  int64_t size() const override { return kImages; }
  int64_t num_classes() const override { return kClasses; }
  std::array<int64_t, 3> image_shape() const override { return {1, kSide, kSide}; }
  std::string class_name(int64_t label) const override { return std::to_string(label); }
  std::string describe() const override { return "patterns"; }
  int64_t read(int64_t index, std::span<uint8_t> pixels) const override {
    check_read(index, pixels);
    const int64_t label = index % kClasses;
    CounterRng pattern(1, 7, label), noise(2, 7, index);
    for (auto& pixel : pixels) pixel = static_cast<uint8_t>(pattern.uniform(0, 200) + noise.uniform(0, 50));
    return label;
  }
};

settings::Settings settings_of(const std::vector<std::string>& words) {
  settings::Settings settings(job_schema());
  settings.apply(std::vector<std::string>{"train.batch=10", "train.lr=0.05", "embedding=16", "train.log_every=1",
                                          "comm.timeout=20"});
  settings.apply(words);
  return settings;
}

struct LossRecorder : train::Observer {
  std::vector<double> losses;
  void on_step(int64_t, int64_t, double, std::optional<double> loss) override { losses.push_back(*loss); }
};

struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> tensors;  // rank 0's shared ones, every rank's own
  train::Outcome outcome;
};

struct Plan {
  int ranks = 1;
  int64_t steps = 20;
  train::CheckpointStore* store = nullptr;
  bool resume = false;
  int64_t stop_after = 0;
  int64_t save_every = 0;
  int64_t total = 20;  // steps that the schedule is made for
};

Trained run(const settings::Settings& settings, const Plan& plan) {
  Patterns patterns;
  Trained trained;
  std::mutex mutex;
  comm::run_ranks(plan.ranks,
                  [&](comm::ProcessGroup& group) {
                    const auto loader = training_loader(settings, patterns, group);
                    const auto test = evaluation_loader(settings, patterns, group);
                    const auto task = make_task(settings, patterns, head_form(settings), group);
                    auto options = trainer_options(settings, patterns, loader->batches_per_epoch());
                    options.steps = plan.steps;
                    options.schedule.steps = plan.total;
                    options.checkpoint_every = plan.save_every;
                    LossRecorder recorder;
                    options.stop_requested = [&] {
                      return plan.stop_after > 0 && group.rank() == 0 &&
                             static_cast<int64_t>(recorder.losses.size()) >= plan.stop_after;
                    };
                    train::Trainer trainer(*task, *loader, test.get(), kClasses, options, plan.store, group);
                    if (plan.resume) {
                      EXPECT_TRUE(trainer.resume(*plan.store, std::nullopt));
                    }
                    const auto outcome = trainer.run(recorder);
                    const std::lock_guard lock(mutex);
                    const auto keep = [&](const std::string& name, const Tensor& tensor, bool own) {
                      if (own || group.rank() == 0)
                        trained.tensors[own ? name + std::to_string(group.rank()) : name] = tensor.detach().clone();
                    };
                    for (const auto& p : task->parameters()) keep(p.name, p.tensor, p.rows.has_value());
                    for (const auto& b : task->buffers()) keep(b.name, b.tensor, false);
                    for (const auto& s : trainer.optimizer().state()) keep(s.name, s.tensor, s.rows.has_value());
                    if (group.rank() == 0) trained.losses = recorder.losses, trained.outcome = outcome;
                  },
                  {.threads = 1});
  return trained;
}

void expect_same_bits(const Trained& a, const Trained& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) EXPECT_TRUE(tensor.equal(b.tensors.at(name))) << name;
}

TEST(Training, TwentyStepsHaveTheLossesOfOneDevice) {
  const std::vector<std::vector<std::string>> jobs = {
      {"head=cosface"}, {"head=softmax", "train.clip=1"}, {"head=cosface", "train.optimizer=adamw", "train.lr=0.01"}};
  for (auto words : jobs) {
    words.insert(words.end(), {"model=mlp", "train.precision=float64"});
    const auto settings = settings_of(words);
    const auto one = run(settings, {.ranks = 1});
    const auto mean_of_five = [&](int first) {
      return std::accumulate(one.losses.begin() + first, one.losses.begin() + first + 5, 0.0) / 5;
    };
    EXPECT_LT(mean_of_five(15), mean_of_five(0)) << words[0];
    for (const int ranks : {2, 3, 4}) {
      const auto several = run(settings, {.ranks = ranks});
      ASSERT_EQ(several.losses.size(), 20u);
      for (int step = 0; step < 20; ++step) {
        EXPECT_NEAR(several.losses[step], one.losses[step], 1e-10)
            << words[0] << " ranks " << ranks << " step " << step;
      }
      EXPECT_DOUBLE_EQ(several.outcome.scores.top1, one.outcome.scores.top1);
    }
  }
}

TEST(Training, BothFormsOfTheHeadAgree) {
  const auto words = std::vector<std::string>{"model=mlp", "train.precision=float64"};
  auto naive_words = words;
  naive_words.emplace_back("head.parallel=naive");
  const auto sharded = run(settings_of(words), {.ranks = 3}), naive = run(settings_of(naive_words), {.ranks = 3});
  for (int step = 0; step < 20; ++step) EXPECT_NEAR(sharded.losses[step], naive.losses[step], 1e-10);
}

TEST(Training, ResumingGivesTheSameBits) {
  for (const int ranks : {1, 3}) {
    for (const char* optimizer : {"train.optimizer=sgd", "train.optimizer=adamw"}) {
      const auto settings = settings_of({"model=resnet_glyph", optimizer});
      const auto whole = run(settings, {.ranks = ranks});
      const auto folder = std::filesystem::temp_directory_path() / ("tandem_resume_" + std::to_string(getpid()));
      train::CheckpointStore store(folder);
      run(settings, {.ranks = ranks, .steps = 13, .store = &store});  // in the middle of the second epoch
      const auto resumed = run(settings, {.ranks = ranks, .store = &store, .resume = true});
      std::filesystem::remove_all(folder);
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
  const std::vector<std::vector<std::string>> samplings = {
      {"head.sample=0.5"},
      {"head.sample=0.4", "head.lazy=exact"},
      {"head.sample=0.4", "head.lazy=exact", "head.log_q=true", "head.fused_update=true", "train.nesterov=false"},
      {"head.sample=0.3", "train.optimizer=adamw", "train.lr=0.01", "head=arcface"}};
  for (auto words : samplings) {
    words.insert(words.end(), {"model=mlp", "train.precision=float64"});
    const auto settings = settings_of(words);
    const auto one = run(settings, {.ranks = 1, .steps = 50, .total = 50});
    ASSERT_EQ(one.losses.size(), 50u);
    const auto expect_near = [&](const std::vector<double>& losses, size_t first, int ranks) {
      for (size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], one.losses[first + i], 1e-9) << words[0] << ranks;
    };
    for (const int ranks : {2, 3, 4}) {
      expect_near(run(settings, {.ranks = ranks, .steps = 50, .total = 50}).losses, 0, ranks);
    }
    const auto folder = std::filesystem::temp_directory_path() / ("tandem_reshard_" + std::to_string(getpid()));
    train::CheckpointStore store(folder);
    expect_near(run(settings, {.ranks = 4, .steps = 17, .store = &store, .total = 50}).losses, 0, 4);
    expect_near(run(settings, {.ranks = 3, .steps = 33, .store = &store, .resume = true, .total = 50}).losses, 17, 3);
    const auto last = run(settings, {.ranks = 1, .steps = 50, .store = &store, .resume = true, .total = 50});
    expect_near(last.losses, 33, 1);
    for (const auto& [name, tensor] : whole_tensors(last, 1)) {
      EXPECT_TRUE(at::allclose(tensor, whole_tensors(one, 1).at(name), 1e-8, 1e-10)) << words[0] << name;
    }
    std::filesystem::remove_all(folder);
  }
}

TEST(Training, ResumingASampledRunGivesTheSameBits) {
  const auto settings = settings_of({"model=mlp", "head.sample=0.4", "head.lazy=exact", "eval.every=0"});
  const auto folder = std::filesystem::temp_directory_path() / ("tandem_sampled_" + std::to_string(getpid()));
  train::CheckpointStore store(folder), other(folder / "other");
  run(settings, {.ranks = 2, .steps = 13, .store = &store});
  const auto resumed = run(settings, {.ranks = 2, .store = &store, .resume = true});
  // Saving brings all rows up to date, which rounds: a run that never saves has other last bits.
  const auto whole = run(settings, {.ranks = 2, .store = &other, .save_every = 13});
  expect_same_bits(resumed, whole);
  std::filesystem::remove_all(folder);
}

TEST(Training, OneRanksWishStopsAllAndIsSaved) {
  const auto folder = std::filesystem::temp_directory_path() / ("tandem_stop_" + std::to_string(getpid()));
  train::CheckpointStore store(folder);
  const auto trained = run(settings_of({"model=mlp"}), {.ranks = 3, .store = &store, .stop_after = 5});
  EXPECT_TRUE(trained.outcome.stopped);
  EXPECT_EQ(trained.outcome.steps, 5);
  EXPECT_EQ(store.list(), std::vector<int64_t>{5});
  std::filesystem::remove_all(folder);
}

TEST(Training, AnotherJobsCheckpointIsPassedOver) {
  const auto folder = std::filesystem::temp_directory_path() / ("tandem_other_" + std::to_string(getpid()));
  train::CheckpointStore store(folder);
  run(settings_of({"model=mlp"}), {.ranks = 1, .steps = 2, .store = &store});
  Patterns patterns;
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    const auto settings = settings_of({"model=mlp", "embedding=24"});
    const auto loader = training_loader(settings, patterns, group);
    const auto task = make_task(settings, patterns, HeadForm::sharded, group);
    train::Trainer trainer(*task, *loader, nullptr, kClasses, trainer_options(settings, patterns, 10), nullptr, group);
    testing::internal::CaptureStderr();
    EXPECT_FALSE(trainer.resume(store, std::nullopt));
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "warning: checkpoint step_00000002 is of another job: embedding is 16, wanted 24\n");
  });
  std::filesystem::remove_all(folder);
}

/// Earlier versions wrote settings without effect with whatever value they had.
TEST(Training, ASettingWithoutEffectInACheckpointDoesNotMatter) {
  const auto folder = std::filesystem::temp_directory_path() / ("tandem_idle_" + std::to_string(getpid()));
  train::CheckpointStore store(folder);
  Patterns patterns;
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    const auto settings = settings_of({"model=mlp", "head=softmax", "head.margin=0.7"});
    const auto loader = training_loader(settings, patterns, group);
    const auto task = make_task(settings, patterns, HeadForm::sharded, group);
    auto options = trainer_options(settings, patterns, loader->batches_per_epoch());
    options.steps = 2;
    const auto margin = std::ranges::find(options.job, "head.margin", &storage::Identity::value_type::first);
    ASSERT_NE(margin, options.job.end());
    EXPECT_EQ(margin->second, "0.2");
    margin->second = "0.9";
    train::Observer nobody;
    train::Trainer(*task, *loader, nullptr, kClasses, options, &store, group).run(nobody);
    train::Trainer same(*task, *loader, nullptr, kClasses, trainer_options(settings, patterns, 10), nullptr, group);
    EXPECT_TRUE(same.resume(store, std::nullopt));
    EXPECT_EQ(same.step(), 2);
  });
  std::filesystem::remove_all(folder);
}

TEST(Training, ALossThatIsNotFiniteEndsTheRunOnAllRanks) {
  std::string text;
  try {
    run(settings_of({"model=mlp", "head=softmax", "train.lr=1e300", "train.precision=float64"}), {.ranks = 2});
  } catch (const NonFiniteError& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("wanted a finite number (rank "), std::string::npos) << text;
}

/// Peak bytes of each of four ranks in one step with 2,002 classes: 501, 501, 500 and 500 of them.
std::array<int64_t, 4> peaks_of_a_step(HeadForm form) {
  memory::install_meter();
  const auto settings = settings_of({"model=mlp", "train.batch=40", "head.classes=2002"});
  const Patterns patterns;
  std::array<int64_t, 4> peaks{};
  comm::run_ranks(4, [&](comm::ProcessGroup& group) {
    const memory::RankScope scope(group.rank());
    const auto loader = training_loader(settings, patterns, group);
    const auto task = make_task(settings, patterns, form, group);
    EXPECT_EQ(task->parameters().back().name, kHeadWeight);
    EXPECT_EQ(task->parameters().back().rows->count, group.rank() < 2 ? 501 : 500);
    loader->start(0);
    data::Batch batch;
    ASSERT_TRUE(loader->next(batch));
    memory::reset_peak(group.rank());
    task->loss(batch, comm::split_sizes(batch.global_size, group.size())).backward();
    peaks.at(group.rank()) = memory::account(group.rank()).peak_bytes();
  });
  return peaks;
}

TEST(Training, TheHeadIsBalancedAndTheNaiveFormIsNot) {
  constexpr int64_t kScoresOfOthers = 40 * (2002 - 501) * 4;  // which the naive form gathers on rank 0
  const auto sharded = peaks_of_a_step(HeadForm::sharded), naive = peaks_of_a_step(HeadForm::naive);
  const auto [least, most] = std::ranges::minmax(sharded);
  EXPECT_LE(most - least, 2000) << "one class more: a row of weight and gradient, a column of scores";
  EXPECT_GE(naive[0] - *std::max_element(naive.begin() + 1, naive.end()), kScoresOfOthers);
  EXPECT_GE(naive[0] - sharded[0], kScoresOfOthers);
}

}  // namespace
}  // namespace tandem::cli
