#include "tandem/job/memory_probe.h"

#include <unistd.h>

#include "tandem/job/parts.h"
#include "tandem/job/rank_memory.h"
#include "tandem/memory/meter.h"

namespace tandem::job {
namespace {

constexpr int64_t kSteps = 2;  // the second has momentum and the rebuilt gradient buckets

/// If all scores are on rank 0, it holds about four buffers of them.
bool fits_easily(const Job& job, const DataShape& shape) {
  if (!job.head.options.naive) return true;
  const double scores = 4.0 * 8.0 * static_cast<double>(shape.classes) * static_cast<double>(job.training.batch);
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return scores < memory / 4;
}

FormMemory measure(const Job& job, const data::Dataset& dataset, comm::ProcessGroup& group) {
  const auto shape = shape_of(job, dataset);
  const auto loader = training_loader(job, dataset, group);
  const auto plan = plan_rank(job, shape, {.batches = loader->batches_per_epoch()}, group);
  memory::reset_peak(group.rank());
  const auto task = make_task(job, shape, plan.counts, group);
  auto options = trainer_options(job, loader->batches_per_epoch());
  options.steps = kSteps;
  options.evaluate_every = options.checkpoint_every = 0;
  const auto step = make_step(job, shape, *task, group, group);
  train::Trainer trainer(*step, *loader, nullptr, options, nullptr, group);
  train::Observer nobody;
  RankFacts facts;
  set_training(facts, trainer.run(nobody).memory, plan.own.step);
  facts.at_peak = memory::account(group.rank()).at_peak;
  facts.head_bytes = head_bytes(*task, *step);
  return {job.head.form(), gather_facts(facts, group)};
}

}  // namespace

std::vector<FormMemory> compare_forms(const Job& job, const data::Dataset& dataset, comm::ProcessGroup& group) {
  std::vector<FormMemory> forms;
  for (const auto form : {HeadForm::sharded, HeadForm::naive}) {
    const auto own = with_form(job, form);
    if (fits_easily(own, shape_of(own, dataset))) forms.push_back(measure(own, dataset, group));
  }
  return forms;
}

int64_t head_bytes(const train::Task& task, const train::Step& step) {
  const auto rows = task.row_parameter();
  const bool has_gradient = !rows || !rows->steps_in_backward;
  int64_t bytes = 0;
  for (const auto& parameter : task.parameters()) {  // weight and gradient
    if (parameter.name == kHeadWeight) bytes += (has_gradient ? 2 : 1) * int64_t(parameter.tensor.nbytes());
  }
  for (const auto& state : step.state()) {  // of the optimizer
    if (state.name.ends_with(std::string(".") + kHeadWeight)) bytes += static_cast<int64_t>(state.tensor.nbytes());
  }
  return bytes;
}

}  // namespace tandem::job
