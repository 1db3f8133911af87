#include "tandem/cli/bench/timed_step.h"

#include <ATen/ATen.h>

#include <chrono>
#include <numeric>

#include "tandem/base/context.h"
#include "tandem/base/rng.h"
#include "tandem/base/seconds.h"

namespace tandem::cli {
namespace {

constexpr double kLearningRate = 0.01;

/// This rank's part of a batch of noise, the same whatever the number of ranks.
data::Batch batch_of(const job::Job& job, const job::DataShape& shape, const comm::ProcessGroup& group) {
  const CategoryScope scope(Category::buffers);
  const auto& [channels, height, width] = shape.image;
  const auto options = training_loader_options(job, group.rank(), group.size());
  const auto sizes = data::samples_of_ranks(options, job.training.batch);
  const auto first = std::accumulate(sizes.begin(), sizes.begin() + options.rank, int64_t{0});
  const auto samples = sizes[static_cast<size_t>(options.rank)];
  data::Batch batch;
  batch.images = at::empty({samples, channels, height, width}, at::kFloat);
  fill_normal_(batch.images, 1.0, 1, 1, {.first = {first, 0, 0, 0}, .count = batch.images.sizes().vec()},
               {job.training.batch, channels, height, width});
  batch.labels = at::arange(first, first + samples, at::kLong) * 7919 % shape.classes;
  batch.global_size = job.training.batch;
  batch.first_sample = first;
  return batch;
}

}  // namespace

TimedStep::TimedStep(const job::Job& job, const job::TaskPlan& plan, comm::ProcessGroup& group)
    : TimedStep(job, shape_of(job), plan, group) {}

TimedStep::TimedStep(const job::Job& job, const job::DataShape& shape, const job::TaskPlan& plan,
                     comm::ProcessGroup& group)
    : job_(job), batch_(batch_of(job, shape, group)), parts_(assemble(job, shape, plan, group)) {}

Context TimedStep::context() const {
  auto context = current_context();
  context.category = Category::activations;
  context.seed = job_.seed;
  context.step = steps_;
  return context;
}

train::Step::Costs TimedStep::measure() {
  const ContextScope scope(context());
  return parts_.step->measure(batch_);
}

double TimedStep::run() {
  const ContextScope scope(context());
  const auto start = std::chrono::steady_clock::now();
  parts_.step->run(batch_, steps_++, kLearningRate);
  return seconds_since(start);
}

void TimedStep::settle() {
  while (parts_.step->end_next()) {
  }
  parts_.step->settle();
}

}  // namespace tandem::cli
