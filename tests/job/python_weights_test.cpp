#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/job/parts.h"
#include "tandem/job/starting_weights.h"
#include "tandem/train/reshard.h"
#include "tests/job/job_of.h"
#include "tests/support/python.h"

// Weights between Python's torchvision and timm and Tandem, under each strategy.
namespace tandem::job {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kClasses = 7;
const DataShape kShape = {.classes = kClasses, .image = {3, 40, 40}};

data::Batch part_of(const Tensor& images, const comm::ProcessGroup& group) {
  const auto [begin, end] = comm::split_range(images.size(0), group.size(), group.rank());
  data::Batch batch;
  batch.images = images.slice(0, begin, end);
  batch.labels = at::arange(begin, end).remainder(kClasses);
  batch.global_size = images.size(0);
  return batch;
}

/// Of the images of all ranks.
Tensor embeddings_of(train::Task& task, train::Step& step, const Tensor& images) {
  step.unify();
  task.set_training(false);
  data::Batch batch;
  batch.images = images;
  auto embeddings = task.embed(batch);
  task.set_training(true);
  return embeddings;
}

bool are_close(const Tensor& ours, const Tensor& theirs) {
  return (ours - theirs).abs().max().item<double>() <= 1e-5 * std::max(1.0, theirs.abs().max().item<double>());
}

/// Starts from the file, takes a step, and writes what Python reads. Returns the embeddings after it.
Tensor there_and_back(const Job& job, const Tensor& images, const Tensor& expected, const std::filesystem::path& file) {
  const test::TemporaryFolder folder;
  train::CheckpointStore store(folder.path());
  Tensor after;
  comm::run_ranks(
      job.parallel.ranks,
      [&](comm::ProcessGroup& group) {
        const auto [mesh, task, trace, step, search] =
            assemble(job, kShape, even_counts(job, kShape.classes, group.size()), group,
                     [&](const train::Task& made) { start_from_weights(job, made, group); });
        EXPECT_TRUE(are_close(embeddings_of(*task, *step, images), expected)) << file;
        step->run(part_of(images, mesh->batch()), 0, 0.01);
        const auto own = embeddings_of(*task, *step, images);
        EXPECT_FALSE(are_close(own, expected)) << "the step has moved nothing";
        EXPECT_TRUE(save_checkpoint(store, 1, {.tensors = step->state(), .identity = {}, .trainer = {}}, group));
        if (group.rank() == 0) after = own;
      },
      {.threads = 1});
  train::merge_weights(train::CheckpointReader(store, 1), file);
  return after;
}

/// Python, which reads the files of a folder as they come and removes them: a few of them would fill a memory's folder.
class Reader {
 public:
  explicit Reader(const test::TemporaryFolder& folder)
      : folder_(folder), answer_(std::async(std::launch::async, [&folder] {
          return test::ask_python("weights.py", {"check", folder.path().string()});
        })) {}
  ~Reader() { test::spill(folder_ / "end", ""); }

  /// Returns when the file is read, or nobody reads any more.
  void wait_for(const std::string& name) const {
    const auto is_over = [&] { return answer_.wait_for(std::chrono::milliseconds(10)) == std::future_status::ready; };
    while (std::filesystem::exists(folder_ / name) && !is_over()) continue;
  }

  test::OracleAnswer end() {
    test::spill(folder_ / "end", "");
    return answer_.get();
  }

 private:
  const test::TemporaryFolder& folder_;
  std::future<test::OracleAnswer> answer_;
};

TEST(PythonWeights, TheirNetworksEmbedAsInPythonAndComeBack) {
  const test::TemporaryFolder folder;
  const auto made = test::ask_python("weights.py", {"make", folder.path().string()});
  if (made.missing) GTEST_SKIP() << "no oracle: " << made.text;
  std::map<std::string, Tensor> ours;
  Reader reader(folder);
  for (const std::string model : {"resnet18", "resnet50", "vit_tiny"}) {
    std::vector<std::string> plans = {"tensor"};
    for (const auto& strategy : parallel::strategies()) plans.emplace_back(strategy.name);
    for (const auto& plan : plans) {
      const auto job =
          job_of({"model=" + model, "embedding=16", "model.patch=8", "ranks=" + std::to_string(kRanks), "train.batch=4",
                  "parallel=" + plan, "threads=1", "model.weights=" + (folder / (model + ".safetensors")).string()});
      const auto name = model + "." + plan + ".safetensors";
      ours[name] = there_and_back(job, made.tensors.at(model + "/images"), made.tensors.at(model + "/embeddings"),
                                  folder / "next.safetensors");
      std::filesystem::rename(folder / "next.safetensors", folder / name);
      reader.wait_for(name);
    }
  }
  const auto back = reader.end();
  for (const auto& [name, embeddings] : ours) {
    EXPECT_TRUE(are_close(embeddings, back.tensors.at(name + "/embeddings"))) << name;
  }
}

}  // namespace
}  // namespace tandem::job
