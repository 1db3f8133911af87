#include "tests/job/device_job.h"

#include <gtest/gtest.h>

#include "tandem/base/device_kernels.h"
#include "tandem/comm/world.h"
#include "tandem/parallel/strategy.h"
#include "tandem/train/weights_hash.h"
#include "tests/train/loss_recorder.h"

namespace tandem::job {
namespace {

Trained train_rank(const Place& place, const std::vector<std::string>& words, comm::ProcessGroup& group) {
  auto job = job_of(words);
  job.parallel.device = job.head.options.device = place.device.type();
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
  words.insert(words.end(), {"train.batch=20", "train.steps=" + std::to_string(place.steps), "train.lr=0.01",
                             "train.log_every=1", "embedding=16", "ranks=" + std::to_string(place.ranks)});
  Trained trained;
  const auto leave_all = [](bool on) {
    for (const auto kernels : {Kernels::activation, Kernels::inplace_abn, Kernels::running_statistics,
                               Kernels::batch_norm, Kernels::scores}) {
      leave_to_operators(kernels, on);
    }
  };
  leave_all(place.operators);
  const int ranks = job_of(words).parallel.ranks;  // those of a process are replicas in some strategies
  comm::run_ranks(ranks,
                  [&](comm::ProcessGroup& group) {
                    auto own = train_rank(place, words, group);
                    if (group.rank() == 0) trained = std::move(own);
                  },
                  {.threads = 1, .device = place.device});
  leave_all(false);
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

std::vector<SharedCase> shared_cases() {
  const std::string pipeline = "mesh.pipeline=2", tensor = "mesh.tensor=2", micro_batches = "train.accumulate=2";
  std::vector<SharedCase> cases;
  for (const auto& strategy : parallel::strategies()) {
    const auto own = "parallel=" + std::string(strategy.name);
    // Before a step ends, all ranks must know whether one lacks a gradient.
    const int waits = strategy.name == "ddp" || strategy.name == "ps" ? 2 : 1;
    cases.push_back({3, {own, "model=mlp", "train.clip=0.5"}, true, waits});
    cases.push_back({2, {own, "model=resnet_glyph"}, true, waits});
  }
  for (const auto* norm : {"abn-leaky", "abn-elu", "abn-swish", "sync", "ghost"}) {
    cases.push_back({2, {"model=resnet_glyph", std::string("model.norm=") + norm}, true, 2});
  }
  cases.push_back(
      {2, {"model=resnet_glyph", "model.norm=group"}, false, 2});  // libtorch lays out its gradient otherwise
  for (const auto* recompute : {"all", "sqrt", "log"}) {
    cases.push_back({2, {"model=resnet_glyph", std::string("recompute=") + recompute}, true, 2});
  }
  cases.push_back({2, {"parallel=fsdp", "model=resnet_glyph", "recompute=all", "model.norm=abn-swish"}});
  cases.push_back({2, {"model=resnet_glyph", tensor}});
  cases.push_back({4, {"parallel=fsdp", "model=resnet_glyph", tensor}});
  for (const auto* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
    cases.push_back({2, {"model=resnet_glyph", pipeline, micro_batches, std::string("pipeline.schedule=") + schedule}});
  }
  cases.push_back({2, {"model=resnet_glyph", pipeline, micro_batches, "recompute=all"}});
  cases.push_back({2, {"model=resnet_glyph", pipeline, micro_batches, "head.over=pipeline"}});
  cases.push_back({4, {"parallel=fsdp", "model=resnet_glyph", pipeline, micro_batches, "head.over=all"}});
  cases.push_back({4, {"model=resnet_glyph", tensor, pipeline, micro_batches}});
  return cases;
}

}  // namespace tandem::job
