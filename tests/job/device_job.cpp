#include "tests/job/device_job.h"

#include <gtest/gtest.h>

#include "tandem/base/device_kernels.h"
#include "tandem/comm/world.h"
#include "tandem/train/weights_hash.h"
#include "tests/train/loss_recorder.h"

namespace tandem::job {
namespace {

Trained train_rank(const Place& place, const std::vector<std::string>& words, comm::ProcessGroup& group) {
  leave_to_operators(Kernels::scores, place.operators);  // of this thread, which ends with the rank
  auto job = job_of(words);
  const auto index = static_cast<c10::DeviceIndex>(place.type == at::kCPU ? -1 : group.rank());
  job.parallel.device = c10::Device(place.type, index);
  job.head.options.device = job.parallel.device;
  const Patterns patterns;
  const auto loader = training_loader(job, patterns, group), test = evaluation_loader(job, patterns, group);
  const auto [mesh, task, trace, step, search] = assemble(job, shape_of(job, patterns), group);
  train::LossRecorder recorder;
  auto options = trainer_options(job, loader->batches_per_epoch());
  options.checkpoint_every = place.folder.empty() ? 0 : 4;
  train::CheckpointStore store(place.folder, 2);
  train::Trainer trainer(*step, *loader, test.get(), options, place.folder.empty() ? nullptr : &store, group);
  if (place.resumes) {
    EXPECT_TRUE(trainer.resume(store, 4));
  }
  const auto outcome = trainer.run(recorder);
  return {recorder.losses, outcome.scores, train::weights_hash(step->weights(), group)};
}

}  // namespace

Trained train_on(const Place& place, std::vector<std::string> words) {
  words.insert(words.end(), {"train.batch=20", "train.steps=8", "train.lr=0.01", "train.log_every=1", "embedding=16",
                             "ranks=" + std::to_string(place.ranks)});
  Trained trained;
  comm::run_ranks(place.ranks,
                  [&](comm::ProcessGroup& group) {
                    auto own = train_rank(place, words, group);
                    if (group.rank() == 0) trained = std::move(own);
                  },
                  {.threads = 1});
  return trained;
}

std::vector<std::vector<std::string>> device_cases() {
  return {{"model=mlp"},
          {"model=mlp", "head.parallel=naive"},
          {"model=mlp", "head.fused_update=true"},
          {"model=mlp", "head.sample=0.5", "head.lazy=exact"},
          {"model=mlp", "head=arcface", "train.clip=0.5", "train.accumulate=2"},
          {"model=mlp", "head=sphereface", "train.optimizer=adamw", "train.skip_nonfinite=2"},
          {"model=mlp", "head=softmax", "head.smoothing=0.1"},
          {"model=mlp", "train.ema=0.9"},
          {"model=resnet_glyph"}};
}

}  // namespace tandem::job
