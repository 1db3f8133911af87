#include "tandem/job/parts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/classifier/ordered_softmax_loss.h"
#include "tandem/comm/split.h"
#include "tandem/job/ranks.h"
#include "tandem/job/sections/mesh.h"
#include "tandem/train/pipeline_passes.h"
#include "tandem/train/supervised_step.h"

namespace tandem::job {
namespace {

/// While a CPU computes, one thread keeps up with it; a GPU leaves the cores to those who feed it.
int workers_of(const Job& job) {
  if (job.data.workers > 0) return job.data.workers;
  return job.parallel.device.is_cpu() ? 1 : threads_of(job.parallel);
}

data::LoaderOptions loader_options(const Job& job, int rank, int size) {
  const auto shares = job.parallel.shares(size);
  data::LoaderOptions options;
  options.rank = job.parallel.rank_of_batch(rank, size).rank;
  options.idle = shares.idle;
  options.size = shares.workers();
  options.seed = job.seed;
  options.prefetch = job.data.prefetch;
  // Other stages of a pipeline take no images.
  if (job.parallel.mesh(size).coordinate(parallel::Axis::pipeline, rank) == 0) options.device = job.parallel.device;
  options.threads = workers_of(job);
  return options;
}

train::ScheduleOptions schedule_options(const Job& job, int64_t steps, int64_t steps_per_epoch) {
  auto options = job.schedule.options;
  options.steps = steps;
  if (job.schedule.changes_by_epoch) options.every = std::max<int64_t>(1, steps_per_epoch);
  for (const double epoch : job.schedule.milestone_epochs)
    options.milestones.push_back(std::llround(epoch * static_cast<double>(steps_per_epoch)));
  return options;
}

/// The schedule of the job's pipeline.
train::MakePasses pipeline_passes(const Job& job) {
  return [&job](train::Task& task, parallel::GradientSync& sync, const std::vector<train::Parameter>& trained,
                parallel::Mesh& mesh) -> std::unique_ptr<train::Passes> {
    train::PipelinePassesOptions options = {
        .accumulate = job.training.accumulate,
        .shares = job.parallel.shares(job.parallel.ranks),
        .program = [job](int micro_batches) { return program_of(job, micro_batches); }};
    return std::make_unique<train::PipelinePasses>(task, sync, trained, mesh, std::move(options));
  };
}

search::SearchStepOptions search_options(const Job& job, const train::SupervisedStepOptions& weights) {
  return {.method = job.model.search_method,
          .architect = job.search->architect,
          .alphas = job.search->alphas,
          .alphas_rate = job.search->rate,
          .weights = weights,
          .guard = job.search->is_guarded ? std::optional<search::GuardOptions>(std::in_place) : std::nullopt};
}

}  // namespace

data::LoaderOptions training_loader_options(const Job& job, int rank, int size) {
  auto options = loader_options(job, rank, size);
  options.batch = job.training.batch;
  options.shards = job.training.shards;
  options.augment = job.data.augment;
  return options;
}

std::unique_ptr<data::Loader> training_loader(const Job& job, const data::Dataset& dataset,
                                              const comm::ProcessGroup& world) {
  return std::make_unique<data::Loader>(dataset, training_loader_options(job, world.rank(), world.size()));
}

data::LoaderOptions evaluation_loader_options(const Job& job, int rank, int size) {
  auto options = loader_options(job, rank, size);
  options.batch = std::max<int64_t>(job.evaluation.batch, options.size + options.idle);
  options.augment.normalization = job.data.preprocessing.normalization;
  return data::test_options(options);
}

std::unique_ptr<data::Loader> evaluation_loader(const Job& job, const data::Dataset& dataset,
                                                const comm::ProcessGroup& world) {
  return std::make_unique<data::Loader>(dataset, evaluation_loader_options(job, world.rank(), world.size()));
}

/// A rank that differs from `rank` along the pipeline only, and has the last stage.
int with_last_stage(const Job& job, int rank, int ranks) {
  return job.parallel.mesh(ranks).ranks_along({parallel::Axis::pipeline}, rank)[stage_ranks(job).back()];
}

bool only_serves(const Job& job, int rank, int ranks) {
  return job.parallel.rank_of_batch(rank, ranks).rank >= job.parallel.shares(ranks).workers();
}

bool has_head(const Job& job, int rank, int ranks) {
  return divides_head(job) || with_last_stage(job, rank, ranks) == rank;
}

std::vector<int> class_holders(const Job& job, int ranks) {
  auto holders = job.parallel.mesh(ranks).ranks_along(job.head.over, with_last_stage(job, 0, ranks));
  std::erase_if(holders, [&](int rank) { return only_serves(job, rank, ranks); });
  return holders;
}

std::vector<int64_t> even_counts(const Job& job, int64_t classes, int ranks) {
  if (job.training.shards > 0) return classifier::ordered_counts({job.training.shards, classes}, ranks);
  const auto holders = class_holders(job, ranks);
  const auto parts = comm::split_sizes(classes, static_cast<int>(holders.size()));
  std::vector<int64_t> counts(static_cast<size_t>(ranks), 0);
  for (size_t i = 0; i < holders.size(); ++i) counts[holders[i]] = parts[i];
  return counts;
}

HeldClasses held_classes(const Job& job, const std::vector<int64_t>& counts, int rank) {
  const auto ranks = static_cast<int>(counts.size());
  const auto sizes = job.parallel.mesh(ranks);
  if (!has_head(job, rank, ranks)) return {};
  const auto copies = parallel::Axes::all() - job.head.over - parallel::Axes{parallel::Axis::pipeline};
  const int first = sizes.ranks_along(copies, rank).front();
  return {std::accumulate(counts.begin(), counts.begin() + first, int64_t{0}), counts[first]};
}

std::vector<int64_t> with_copies(const Job& job, const std::vector<int64_t>& counts) {
  std::vector<int64_t> all;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    all.push_back(held_classes(job, counts, static_cast<int>(rank)).count);
  }
  return all;
}

std::unique_ptr<parallel::Mesh> make_mesh(const Job& job, comm::ProcessGroup& world) {
  return std::make_unique<parallel::Mesh>(job.parallel.mesh(world.size()), world);
}

Assembly assemble(const Job& job, const DataShape& shape, const TaskPlan& plan, comm::ProcessGroup& world,
                  const std::function<void(train::Task&)>& prepare) {
  check_has_plan(job);
  Assembly parts{.mesh = make_mesh(job, world)};
  parts.task = make_task(job, shape, plan, *parts.mesh);
  if (prepare) prepare(*parts.task);
  if (job.run.traced != Traced::nothing) {
    parts.trace = std::make_unique<train::BlockTrace>(*parts.mesh, job.training.shards > 0, job.parallel.device);
  }
  train::SupervisedStepOptions options = {.optimizer = job.optimizer,
                                          .clip = job.training.clip,
                                          .ema = job.training.ema,
                                          .accumulate = job.training.accumulate,
                                          .shards = job.training.shards,
                                          .num_classes = shape.classes,
                                          .loss_scale = job.training.loss_scale,
                                          .strategy = job.parallel.strategy,
                                          .strategy_options = job.parallel.strategy_options,
                                          .trace = parts.trace.get()};
  if (job.parallel.pipeline > 1) options.passes = pipeline_passes(job);
  if (job.search) {
    auto step =
        std::make_unique<search::SearchStep>(*parts.task, job.search->space, search_options(job, options), *parts.mesh);
    parts.search = step.get();
    parts.step = std::move(step);
  } else {
    parts.step = std::make_unique<train::SupervisedStep>(*parts.task, options, *parts.mesh);
  }
  return parts;
}

Assembly assemble(const Job& job, const DataShape& shape, comm::ProcessGroup& world) {
  return assemble(job, shape, even_counts(job, shape.classes, world.size()), world);
}

std::unique_ptr<data::Loader> begin_search(const Job& job, const Assembly& parts, const data::Dataset& validation,
                                           int64_t steps_per_epoch, const comm::ProcessGroup& world) {
  if (parts.search == nullptr) return nullptr;
  auto loader = training_loader(job, validation, world);
  parts.search->read_from(*loader);
  parts.search->move_alphas_from(job.search->first_step(steps_per_epoch));
  return loader;
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
  options.best = job.run.best;
  return options;
}

}  // namespace tandem::job
