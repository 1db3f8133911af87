#include "tandem/job/memory_probe.h"

#include <unistd.h>

#include "tandem/base/error.h"
#include "tandem/classifier/head_memory.h"
#include "tandem/comm/agree.h"
#include "tandem/job/memory_plan.h"
#include "tandem/job/parts.h"
#include "tandem/job/rank_memory.h"

namespace tandem::job {
namespace {

/// By the memory of the ranks' machines.
bool fits_easily(const Job& job, const DataShape& shape, comm::ProcessGroup& group) {
  auto options = job.head.options;
  options.classes = shape.classes;
  const auto head = classifier::head_memory(options, {.own_classes = even_counts(job, shape.classes, group.size())[0],
                                                      .samples = job.training.batch,
                                                      .ranks = group.size(),
                                                      .is_root = true,
                                                      .threads = threads_of(job.parallel),
                                                      .steps_in_backward = job.head.steps_in_backward});
  const auto memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return !comm::any_rank(total_of(head) > memory / 4, group);
}

/// Another form of the head than the job's, without a limit: it is there to be compared.
Job other_form(const Job& job, const HeadForm& form) {
  auto other = with_form(job, form);
  other.memory = {};
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

std::vector<CategoryBytes> of_all_ranks(const CategoryBytes& own, comm::ProcessGroup& group) {
  std::vector<CategoryBytes> ranks(static_cast<size_t>(group.size()));
  for (size_t category = 0; category < own.size(); ++category) {
    const auto bytes = comm::gather_numbers(own[category], group);
    for (size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank][category] = bytes[rank];
  }
  return ranks;
}

}  // namespace

std::vector<FormMemory> predict_other_forms(const Job& job, const DataShape& shape, int64_t batches,
                                            comm::ProcessGroup& group) {
  std::vector<FormMemory> forms;
  for (const auto& form : head_forms()) {
    if (form.is_whole || &form == job.head.form) continue;
    const auto other = other_form(job, form);
    if (!can_train(other) || !fits_easily(other, shape, group)) continue;
    const auto plan = plan_rank(other, shape, {.batches = batches}, group);
    forms.push_back({&form, of_all_ranks(plan.own.step.account.at_peak, group)});
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
