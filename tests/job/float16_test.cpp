#include <gtest/gtest.h>

#include <mutex>

#include "tandem/comm/world.h"
#include "tandem/job/parts.h"
#include "tandem/train/weights_hash.h"
#include "tests/job/job_of.h"
#include "tests/support/files.h"

// train.precision=float16: whole jobs.
namespace tandem::job {
namespace {

using Words = std::vector<std::string>;

struct Trained {
  std::vector<double> losses;
  std::string state;  // hash of all tensors of a checkpoint
  std::optional<train::Step::Scaling> scaling;
};

struct LossRecorder : train::Observer {
  std::vector<double> losses;
  void on_step(int64_t, int64_t, double, std::optional<double> loss) override { losses.push_back(*loss); }
};

/// `store`: saves its last step there, and goes on from what is there.
Trained train_with(const Words& more, int64_t steps, const std::filesystem::path& store = {}) {
  Words words = {"embedding=16", "train.batch=20", "train.lr=1e-4", "train.log_every=1",
                 "train.steps=" + std::to_string(steps)};
  words.insert(words.end(), more.begin(), more.end());
  const auto job = job_of(words);
  check_training(job);
  const Patterns patterns;
  Trained trained;
  comm::run_ranks(job.parallel.ranks,
                  [&](comm::ProcessGroup& group) {
                    const auto loader = training_loader(job, patterns, group);
                    const auto task = make_task(job, shape_of(job, patterns), group);
                    auto mesh = make_mesh(job, group);
                    const auto step = make_step(job, shape_of(job, patterns), *task, mesh);
                    auto options = trainer_options(job, loader->batches_per_epoch());
                    options.schedule.steps = 12;  // of all runs together
                    std::optional<train::CheckpointStore> checkpoints;
                    if (!store.empty()) checkpoints.emplace(store, 2);
                    train::Trainer trainer(*step, *loader, nullptr, options, checkpoints ? &*checkpoints : nullptr,
                                           group);
                    if (checkpoints && checkpoints->newest({})) {
                      EXPECT_TRUE(trainer.resume(*checkpoints, std::nullopt));
                    }
                    LossRecorder recorder;
                    trainer.run(recorder);
                    const auto state = train::weights_hash(step->state(), group);
                    if (group.rank() == 0) trained = {recorder.losses, state, step->scaling()};
                  },
                  {.threads = 1});
  return trained;
}

const Words kForms[] = {{"model=mlp"},
                        {"model=resnet_glyph"},
                        {"model=resnet_glyph", "model.norm=group", "ranks=3", "train.accumulate=2"},
                        {"model=mlp", "ranks=3", "parallel=fsdp", "recompute=log"},
                        {"model=mlp", "ranks=2", "parallel=local-sgd", "local_sgd.every=3"}};

/// With rounded numbers, losses of the first steps are those of float32 but for 2 %.
TEST(Float16, TrainsAsFloat32) {
  for (auto words : kForms) {
    SCOPED_TRACE(testing::PrintToString(words));
    const auto exact = train_with(words, 6);
    words.insert(words.end(), {"train.precision=float16", "train.loss_scale=64"});
    const auto found = train_with(words, 6);
    EXPECT_FALSE(exact.scaling);
    EXPECT_EQ(found.scaling->left_out, 0);
    EXPECT_NE(found.losses, exact.losses);
    for (size_t i = 0; i < exact.losses.size(); ++i) {
      EXPECT_NEAR(found.losses.at(i), exact.losses[i], 0.02 * exact.losses[i]) << i;
    }
  }
}

/// The scale falls until gradients are finite, and grows in each step that is not left out, over a resume too.
TEST(Float16, AResumedRunHasTheSameBits) {
  for (auto words : kForms) {
    SCOPED_TRACE(testing::PrintToString(words));
    words.insert(words.end(), {"train.precision=float16", "train.loss_scale_growth=1", "checkpoint.every=6"});
    const test::TemporaryFolder whole_folder, folder;
    const auto whole = train_with(words, 12, whole_folder.path());
    train_with(words, 6, folder.path());
    const auto found = train_with(words, 12, folder.path());
    EXPECT_GT(whole.scaling->left_out, 0);
    EXPECT_LT(whole.scaling->left_out, 12);
    EXPECT_EQ(found.scaling->scale, whole.scaling->scale);
    EXPECT_EQ(found.scaling->left_out, whole.scaling->left_out);
    EXPECT_EQ(found.losses, std::vector<double>(whole.losses.begin() + 6, whole.losses.end()));
    EXPECT_EQ(found.state, whole.state);
  }
}

}  // namespace
}  // namespace tandem::job
