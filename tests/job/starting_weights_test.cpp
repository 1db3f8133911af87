#include "tandem/job/starting_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tandem/job/parts.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/reshard.h"
#include "tandem/train/weights_file.h"
#include "tandem/train/weights_hash.h"
#include "tests/job/job_of.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::job {
namespace {

Job glyph_job(const Words& more) { return job_of(with({"model=resnet_glyph", "embedding=8", "train.batch=12"}, more)); }

/// The weights' hash on `ranks` ranks, after they were read from `source` if it is given. `save`: and they are saved.
std::string hash_of(const Job& job, const DataShape& shape, train::CheckpointStore* save = nullptr) {
  std::string hash;
  comm::run_ranks(job.parallel.ranks, [&](comm::ProcessGroup& group) {
    const auto mesh = make_mesh(job, group);
    const auto task = make_task(job, shape, even_counts(job, shape.classes, group.size()), *mesh);
    start_from_weights(job, *task, group);
    if (save != nullptr) {
      EXPECT_TRUE(save_checkpoint(*save, 1, {.tensors = task->weights(), .identity = {}, .trainer = {}}, group));
    }
    const auto own = train::weights_hash(task->weights(), group);
    if (group.rank() == 0) hash = own;
  });
  return hash;
}

TEST(StartFromWeights, AnyNumberOfRanksStartsFromTheRunOfAnyOther) {
  const test::TemporaryFolder folder;
  const DataShape shape = {.classes = 11, .image = {1, 16, 16}};
  train::CheckpointStore store(folder / "checkpoints");
  const auto saved = hash_of(glyph_job({"ranks=3", "seed=5"}), shape, &store);
  for (const std::string ranks : {"1", "2", "4"}) {
    EXPECT_NE(hash_of(glyph_job({"ranks=" + ranks}), shape), saved);
    for (const auto& path : {folder.path(), folder / "checkpoints/step_00000001"}) {
      EXPECT_EQ(hash_of(glyph_job({"ranks=" + ranks, "model.weights=" + path.string()}), shape), saved);
    }
  }
}

TEST(StartFromWeights, WeightsTravelBetweenPrecisions) {
  const DataShape shape = {.classes = 11, .image = {1, 16, 16}};
  const test::TemporaryFolder first;
  train::CheckpointStore store(first / "checkpoints");
  const auto saved = hash_of(glyph_job({"seed=5"}), shape, &store);
  for (const std::string precision : {"float64", "bf16", "float16"}) {
    const test::TemporaryFolder folder;
    train::CheckpointStore other(folder / "checkpoints");
    const auto there = Words{"train.precision=" + precision, "model.weights=" + first.path().string()};
    hash_of(glyph_job(there), shape, &other);
    const auto merged = folder / "merged.safetensors";
    train::merge_weights(train::CheckpointReader(other, 1), merged);
    EXPECT_EQ(storage::SafetensorsFile(merged).dtype("bn1.num_batches_tracked"), at::kLong) << precision;
    for (const auto& path : {folder.path(), merged}) {
      EXPECT_EQ(hash_of(glyph_job({"model.weights=" + path.string()}), shape), saved) << precision;
    }
  }
}

TEST(StartFromWeights, OneOfSeveralModelsIsChosenByASetting) {
  const DataShape shape = {.classes = 11, .image = {1, 16, 16}};
  const test::TemporaryFolder folder;
  train::CheckpointStore store(folder / "checkpoints");
  const auto saved = hash_of(glyph_job({"seed=5"}), shape, &store);
  std::vector<storage::NamedTensor> tensors;
  const auto files = train::open_weights(train::locate_weights(folder.path()));
  for (const auto& name : files.names()) {
    tensors.push_back({"teacher." + name, files.read(name)});
    tensors.push_back({"student." + name, files.read(name).zero_()});
  }
  const auto file = folder / "both.safetensors";
  storage::write_safetensors(file, std::span<const storage::NamedTensor>(tensors));
  const auto word = "model.weights=" + file.string();
  EXPECT_EQ(
      test::text_of<Error>([&] { hash_of(glyph_job({word}), shape); }),
      "model.weights is '" + file.string() +
          "': all weights of this model are there behind each of 'student.', 'teacher.', wanted them once: choose "
          "with model.weights_prefix=student. or model.weights_prefix=teacher.");
  EXPECT_EQ(hash_of(glyph_job({word, "model.weights_prefix=teacher"}), shape), saved);
  EXPECT_EQ(idle_settings(glyph_job({"model.weights_prefix=teacher"})),
            Words{"model.weights_prefix has no effect without model.weights"});
}

TEST(StartFromWeights, FaultsNameTheSettingOnAllRanks) {
  const test::TemporaryFolder folder;
  train::CheckpointStore store(folder / "checkpoints");
  hash_of(glyph_job({"ranks=2"}), {.classes = 11, .image = {1, 16, 16}}, &store);
  const auto word = "model.weights=" + folder.path().string();
  const auto file = (folder / "checkpoints/step_00000001/model.safetensors.index.json").string();
  EXPECT_EQ(test::text_of<Error>([&] {
              hash_of(glyph_job({"ranks=3", word}), {11, {3, 16, 16}});
            }),
            "model.weights is '" + file +
                "': 'conv1.weight' is [32, 1, 3, 3] there, wanted [32, 3, 3, 3] (rank 0 of 3): give the model, "
                "and images of the size and channels, that they are of");
  EXPECT_NO_THROW(hash_of(glyph_job({"ranks=2", word}), {.classes = 13, .image = {1, 16, 16}})) << "other classes";
  const auto nowhere = glyph_job({"model.weights=/nowhere"});
  EXPECT_EQ(
      test::text_of<DataError>([&] { check_weights(nowhere); }),
      "model.weights is '/nowhere', which does not exist, wanted a safetensors file, its index, or a run's folder");
}

TEST(StartFromWeights, IsNoPartOfAnIdentityAndFreezingIs) {
  const Patterns patterns;
  const auto shared = [&](const Words& words) {
    const auto job = glyph_job(words);
    return shared_identity(job, identity(job, patterns));
  };
  EXPECT_EQ(shared({}), shared({"model.weights=/nowhere", "model.zero_gamma=true", "train.decay_norms=false"}));
  EXPECT_NE(shared({}), shared({"model.freeze=conv1"}));
}

TEST(LargeBatches, ScaleTheLearningRateAndSpareNorms) {
  EXPECT_DOUBLE_EQ(glyph_job({"train.lr=0.1", "train.base_batch=8"}).schedule.options.lr, 0.15);
  EXPECT_DOUBLE_EQ(glyph_job({"train.lr=0.1"}).schedule.options.lr, 0.1);
  EXPECT_TRUE(glyph_job({}).optimizer.groups.empty());
  EXPECT_EQ(glyph_job({"train.decay_norms=false"}).optimizer.groups.size(), 1);
}

TEST(Freeze, AnUnknownBeginningNamesTheSetting) {
  EXPECT_EQ(test::text_of<SettingsError>([] {
              make_backbone(glyph_job({"model.freeze=layr1"}), {1, 16, 16});
            }),
            "model.freeze has 'layr1', wanted the beginning of a parameter's name: did you mean layer1?");
  EXPECT_NO_THROW(make_backbone(job_of({"model=none", "embedding=256", "model.freeze=x"}), {1, 16, 16}));
}

}  // namespace
}  // namespace tandem::job
