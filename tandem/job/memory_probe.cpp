#include "tandem/job/memory_probe.h"

#include <unistd.h>

#include "tandem/base/error.h"
#include "tandem/comm/joint_work.h"
#include "tandem/job/memory_plan.h"
#include "tandem/job/parts.h"
#include "tandem/job/rank_memory.h"
#include "tandem/memory/meter.h"

namespace tandem::job {
namespace {

constexpr int64_t kSteps = 2;  // the second has momentum and the rebuilt gradient buckets

/// By rank 0's memory.
bool fits_easily(const Job& job, const DataShape& shape, comm::ProcessGroup& group) {
  comm::JointWork work(group);
  bool fits = true;
  if (group.rank() == 0) {
    const auto memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    const MemoryPlan plan(job, shape);
    fits = total_of(plan.rank(0, plan.even_counts()[0])) < memory / 4;
  }
  return work.end(fits ? 1 : 0) == 1;
}

/// Another form of the head than the job's, without a limit: it is there to be compared.
Job other_form(const Job& job, const HeadForm& form) {
  auto other = with_form(job, form);
  other.memory = {.event_steps = job.memory.event_steps};
  return other;
}

/// Some settings go with some forms only.
bool can_train(const Job& job) {
  try {
    check_training(job);
    return true;
  } catch (const SettingsError&) {
    return false;
  }
}

/// `known`: the job's plan; null: it is made here.
FormMemory measure(const Job& job, const RankPlan* known, const data::Dataset& dataset, comm::ProcessGroup& group) {
  const auto shape = shape_of(job, dataset);
  const auto loader = training_loader(job, dataset, group);
  const auto plan = known != nullptr ? *known : plan_rank(job, shape, {.batches = loader->batches_per_epoch()}, group);
  memory::reset_peak(group.rank());
  const auto task = make_task(job, shape, plan.task, group);
  auto options = trainer_options(job, loader->batches_per_epoch());
  options.steps = kSteps;
  options.evaluate_every = options.checkpoint_every = 0;
  auto mesh = make_mesh(job, group);
  const auto step = make_step(job, shape, *task, mesh);
  train::Trainer trainer(*step, *loader, nullptr, options, nullptr, group);
  train::Observer nobody;
  RankFacts facts;
  set_training(facts, trainer.run(nobody).memory, plan.own.step);
  facts.at_peak = memory::account(group.rank()).at_peak;
  facts.head_bytes = head_bytes(*task, *step);
  return {job.head.form, gather_facts(facts, group)};
}

}  // namespace

std::vector<FormMemory> compare_forms(const Job& job, const RankPlan& plan, const data::Dataset& dataset,
                                      comm::ProcessGroup& group) {
  std::vector<FormMemory> forms;
  for (const auto& form : head_forms()) {
    const bool is_own = &form == job.head.form;
    if (form.is_whole && !is_own) continue;
    const auto one = is_own ? job : other_form(job, form);
    if (!is_own && (!can_train(one) || !fits_easily(one, shape_of(one, dataset), group))) continue;
    forms.push_back(measure(one, is_own ? &plan : nullptr, dataset, group));
  }
  return forms;
}

int64_t head_bytes(const train::Task& task, const train::Step& step) {
  const auto rows = task.row_parameter();
  const bool has_gradient = !rows || !rows->steps_in_backward;
  int64_t bytes = 0;
  for (const auto& parameter : step.weights()) {  // weight and gradient
    if (parameter.name == kHeadWeight) bytes += (has_gradient ? 2 : 1) * int64_t(parameter.tensor.nbytes());
  }
  for (const auto& state : step.state()) {  // of the optimizer
    if (state.name.ends_with(std::string(".") + kHeadWeight)) bytes += static_cast<int64_t>(state.tensor.nbytes());
  }
  return bytes;
}

}  // namespace tandem::job
