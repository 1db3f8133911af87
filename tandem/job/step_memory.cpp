#include "tandem/job/step_memory.h"

#include <algorithm>
#include <chrono>

#include "tandem/data/synthetic.h"
#include "tandem/job/parts.h"
#include "tandem/job/rank_memory.h"
#include "tandem/memory/meter.h"

namespace tandem::job {
namespace {

constexpr int64_t kSteps = 2;

/// When each step ends.
struct Clock : train::Observer {
  using Time = std::chrono::steady_clock;

  void on_step(int64_t, int64_t, double, std::optional<double>) override { ends.push_back(Time::now()); }
  double last_seconds() const {
    return std::chrono::duration<double>(ends.at(kSteps - 1) - ends.at(kSteps - 2)).count();
  }

  std::vector<Time::time_point> ends;
};

data::Split images_of(const Job& job, const DataShape& shape) {
  data::SyntheticOptions options{.classes = shape.classes, .shape = shape.image};
  options.images = std::max(options.images, kSteps * job.training.batch);
  return data::synthetic(options);
}

train::TrainerOptions options_of(const Job& job, int64_t steps_per_epoch) {
  auto options = trainer_options(job, steps_per_epoch);
  options.steps = kSteps;
  options.evaluate_every = options.checkpoint_every = 0;
  return options;
}

}  // namespace

StepMemory measure_step(const Job& job, const DataShape& shape, comm::ProcessGroup& group) {
  const auto data = images_of(job, shape);
  const auto loader = training_loader(job, *data.train, group);
  const auto plan = plan_rank(job, shape, {.batches = loader->batches_per_epoch()}, group);
  const auto held = memory::account(group.rank());
  memory::EventLog log(group.rank());
  const auto parts = assemble(job, shape, plan.task, group);
  train::Trainer trainer(*parts.step, *loader, nullptr, options_of(job, loader->batches_per_epoch()), nullptr, group);
  Clock clock;
  const auto outcome = trainer.run(clock);
  return {memory::timeline_of(log.end(), kSteps - 1, held),
          plan.own.step,
          outcome.memory.at_peak,
          clock.last_seconds(),
          {plan.task.recompute, plan.slowdown}};
}

}  // namespace tandem::job
