#include "tests/job/whole_run.h"

#include <gtest/gtest.h>

#include "tandem/comm/world.h"
#include "tandem/job/recomputation.h"
#include "tandem/memory/meter.h"
#include "tandem/train/evaluate.h"
#include "tandem/train/weights_hash.h"
#include "tests/train/loss_recorder.h"

namespace tandem::job {
namespace {

WholeRun run_rank(const Job& job, const std::filesystem::path& folder, const Inspect& inspect,
                  comm::ProcessGroup& group) {
  const Patterns patterns;
  const auto loader = training_loader(job, patterns, group), test = evaluation_loader(job, patterns, group);
  const auto shape = shape_of(job, patterns);
  const TaskPlan plan{even_counts(job, shape.classes, group.size()), choose_recomputation(job, shape, group).plan};
  const auto parts = assemble(job, shape, plan, group);
  const auto& [mesh, task, trace, step, search] = parts;
  const auto validation = begin_search(job, parts, patterns, loader->batches_per_epoch(), group);
  auto options = trainer_options(job, loader->batches_per_epoch());
  options.schedule.steps = 12;  // of all runs together
  std::optional<train::CheckpointStore> store;
  if (!folder.empty()) store.emplace(folder, 2);
  train::Trainer trainer(*step, *loader, test.get(), options, store ? &*store : nullptr, group);
  if (store && store->newest({})) {
    EXPECT_TRUE(trainer.resume(*store, std::nullopt));
  }
  train::LossRecorder recorder;
  const auto outcome = trainer.run(recorder);
  if (inspect) inspect(*step, *task, group);
  return {recorder.losses,
          outcome.scores.value("top1"),
          outcome.scores.value("loss"),
          train::weights_hash(step->weights(), group),
          train::weights_hash(step->state(), group),
          over_ranks(step->facts(), group)};
}

}  // namespace

WholeRun whole_run(const Words& words, int64_t steps, const std::filesystem::path& store, const Inspect& inspect) {
  const auto job = job_of(with(words, {"train.log_every=1", "train.steps=" + std::to_string(steps)}));
  check_training(job);
  memory::install_meter();
  WholeRun run;
  comm::run_ranks(job.parallel.ranks,
                  [&](comm::ProcessGroup& group) {
                    auto own = run_rank(job, store, inspect, group);
                    if (group.rank() == 0) run = std::move(own);
                  },
                  {.threads = 1});
  return run;
}

train::Scores scores_of(const Words& words, const std::filesystem::path& store) {
  const auto job = job_of(words);
  const Patterns patterns;
  const auto group = comm::make_single_group();
  const auto mesh = make_mesh(job, *group);
  const auto shape = shape_of(job, patterns);
  const auto task = make_task(job, shape, even_counts(job, shape.classes, 1), *mesh);
  train::TrainingState state;
  state.tensors = task->weights();
  EXPECT_TRUE(train::load_checkpoint(train::CheckpointStore(store), state, std::nullopt, *group));
  const auto loader = evaluation_loader(job, patterns, *group);
  return train::evaluate(*task, *loader, shape.classes, mesh->batch());
}

}  // namespace tandem::job
