#include "tandem/job/parts.h"

#include <algorithm>
#include <cmath>

namespace tandem::job {
namespace {

data::LoaderOptions loader_options(const Job& job, int rank) {
  data::LoaderOptions options;
  options.rank = rank;
  options.size = job.parallel.ranks;
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

data::LoaderOptions training_loader_options(const Job& job, int rank) {
  auto options = loader_options(job, rank);
  options.batch = job.training.batch;
  options.augment = job.data.augment;
  return options;
}

std::unique_ptr<data::Loader> training_loader(const Job& job, const data::Dataset& dataset, comm::ProcessGroup& group) {
  return std::make_unique<data::Loader>(dataset, training_loader_options(job, group.rank()));
}

data::LoaderOptions evaluation_loader_options(const Job& job, int rank) {
  auto options = loader_options(job, rank);
  options.batch = std::max<int64_t>(job.evaluation.batch, job.parallel.ranks);
  options.augment = data::no_augmentation();
  options.shuffle = false;
  options.drop_last = false;
  return options;
}

std::unique_ptr<data::Loader> evaluation_loader(const Job& job, const data::Dataset& dataset,
                                                comm::ProcessGroup& group) {
  return std::make_unique<data::Loader>(dataset, evaluation_loader_options(job, group.rank()));
}

train::TrainerOptions trainer_options(const Job& job, int64_t steps_per_epoch) {
  train::TrainerOptions options;
  options.steps = job.training.steps > 0 ? job.training.steps : job.training.epochs * steps_per_epoch;
  options.optimizer = job.optimizer;
  options.schedule = schedule_options(job, options.steps, steps_per_epoch);
  options.seed = job.seed;
  options.clip = job.training.clip;
  options.skip_nonfinite = job.training.skip_nonfinite;
  options.log_every = job.training.log_every;
  options.evaluate_every = job.evaluation.every * steps_per_epoch;
  options.checkpoint_every = job.run.checkpoint_every > 0 ? job.run.checkpoint_every : steps_per_epoch;
  return options;
}

}  // namespace tandem::job
