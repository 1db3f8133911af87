#include "tandem/job/parts.h"

#include <algorithm>
#include <cmath>

#include "tandem/classifier/ordered_softmax_loss.h"
#include "tandem/train/supervised_step.h"

namespace tandem::job {
namespace {

data::LoaderOptions loader_options(const Job& job, int rank, int size) {
  data::LoaderOptions options;
  options.rank = rank;
  options.idle = job.parallel.mesh(size).servers;
  options.size = size - options.idle;
  options.seed = job.seed;
  options.prefetch = job.data.prefetch;
  return options;
}

train::ScheduleOptions schedule_options(const Job& job, int64_t steps, int64_t steps_per_epoch) {
  auto options = job.schedule.options;
  options.steps = steps;
  for (const double epoch : job.schedule.milestone_epochs)
    options.milestones.push_back(std::llround(epoch * static_cast<double>(steps_per_epoch)));
  return options;
}

}  // namespace

data::LoaderOptions training_loader_options(const Job& job, int rank, int size) {
  auto options = loader_options(job, rank, size);
  options.batch = job.training.batch;
  options.shards = job.training.shards;
  options.augment = job.data.augment;
  return options;
}

std::unique_ptr<data::Loader> training_loader(const Job& job, const data::Dataset& dataset, comm::ProcessGroup& data) {
  return std::make_unique<data::Loader>(dataset, training_loader_options(job, data.rank(), data.size()));
}

data::LoaderOptions evaluation_loader_options(const Job& job, int rank, int size) {
  auto options = loader_options(job, rank, size);
  options.batch = std::max<int64_t>(job.evaluation.batch, size);
  options.augment = data::no_augmentation();
  options.shuffle = false;
  options.drop_last = false;
  return options;
}

std::unique_ptr<data::Loader> evaluation_loader(const Job& job, const data::Dataset& dataset,
                                                comm::ProcessGroup& data) {
  return std::make_unique<data::Loader>(dataset, evaluation_loader_options(job, data.rank(), data.size()));
}

std::vector<int64_t> even_counts(const Job& job, int64_t classes, int ranks) {
  if (job.training.shards > 0) return classifier::ordered_counts({job.training.shards, classes}, ranks);
  return job.parallel.mesh(ranks).shares(classes);
}

parallel::Mesh make_mesh(const Job& job, comm::ProcessGroup& world) {
  return parallel::Mesh(job.parallel.mesh(world.size()), world);
}

std::unique_ptr<train::Step> make_step(const Job& job, const DataShape& shape, train::Task& task,
                                       parallel::Mesh& mesh) {
  const train::SupervisedStepOptions options = {.optimizer = job.optimizer,
                                                .clip = job.training.clip,
                                                .accumulate = job.training.accumulate,
                                                .shards = job.training.shards,
                                                .num_classes = shape.classes,
                                                .loss_scale = job.training.loss_scale,
                                                .strategy = job.parallel.strategy,
                                                .strategy_options = job.parallel.strategy_options};
  return std::make_unique<train::SupervisedStep>(task, options, mesh);
}

train::TrainerOptions trainer_options(const Job& job, int64_t steps_per_epoch) {
  train::TrainerOptions options;
  options.steps = job.training.steps > 0 ? job.training.steps : job.training.epochs * steps_per_epoch;
  options.schedule = schedule_options(job, options.steps, steps_per_epoch);
  options.seed = job.seed;
  options.skip_nonfinite = job.training.skip_nonfinite;
  options.log_every = job.training.log_every;
  options.evaluate_every = job.evaluation.every * steps_per_epoch;
  options.checkpoint_every = job.run.checkpoint_every > 0 ? job.run.checkpoint_every : steps_per_epoch;
  return options;
}

}  // namespace tandem::job
