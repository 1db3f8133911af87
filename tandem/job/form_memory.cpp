#include "tandem/job/form_memory.h"

#include <unistd.h>

#include <optional>

#include "tandem/base/error.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/joint_work.h"
#include "tandem/job/large_ranks.h"
#include "tandem/job/parts.h"
#include "tandem/job/rank_memory.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

/// By the memory of the ranks' machines.
bool fits_easily(const Job& job, const DataShape& shape, comm::ProcessGroup& group) {
  int64_t bytes = 0;
  comm::on_leader(
      group, [&] { bytes = LargeRanks(job, shape).peak(0, even_counts(job, shape.classes, group.size())[0]).bytes; });
  const auto memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return !comm::any_rank(comm::broadcast_number(bytes, 0, group) > memory / 4, group);
}

/// The job with other settings of its head, without a limit and recomputation; nullopt if it could not train: some
/// settings go with some forms only.
std::optional<Job> other_head(const Job& job, const std::vector<std::string>& words) {
  try {
    auto settings = job.settings;
    settings.apply(words);
    auto other = read_job(std::move(settings));
    other.memory = {};
    check_training(other);
    return other;
  } catch (const SettingsError&) {
    return std::nullopt;
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

std::vector<FormMemory> compare_forms(const Job& job, const std::vector<PlannedRank>& ranks,
                                      const std::vector<int64_t>& counts, LargeRanks& large) {
  const std::vector<std::string> plain = {"head.fused_update=false", "head.sample=1"};
  const std::string keep_all = "head.keep_bytes=8191P";
  const auto sample =
      "head.sample=" + settings::format_value(job.head.options.sampling ? job.head.options.sampling->rate : 0.1);
  const std::vector<std::pair<std::string, std::vector<std::string>>> forms = {
      {"naive", {"head.parallel=naive"}},
      {"data_parallel", {"head.parallel=replicated", keep_all}},
      {"sharded", {"head.parallel=sharded", keep_all}},
      {"blocks", {"head.parallel=sharded"}},
      {"fused_update", {"head.parallel=sharded", "head.fused_update=true"}},
      {"sampled", {"head.parallel=sharded", "head.fused_update=true", sample}}};
  std::vector<FormMemory> result;
  for (const auto& [name, words] : forms) {
    auto all = plain;
    all.insert(all.end(), words.begin(), words.end());
    const auto other = other_head(job, all);
    if (!other || (other->parallel.is_async && !other->head.form->is_whole)) continue;
    FormMemory form{name, {}};
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto levels = large.with_head(ranks[rank].levels, static_cast<int>(rank), other->head, counts[rank]);
      form.ranks.push_back(memory::highest_of(levels).bytes);
    }
    result.push_back(std::move(form));
  }
  return result;
}

std::vector<FormMemory> predict_other_forms(const Job& job, const DataShape& shape, int64_t batches,
                                            comm::ProcessGroup& group) {
  std::vector<FormMemory> forms;
  const auto predict = [&](const std::string& name, const std::string& word) {
    const auto other = other_head(job, {word});
    if (!other || !fits_easily(*other, shape, group)) return;
    const auto plan = plan_rank(*other, shape, {.batches = batches}, group);
    forms.push_back({name, of_all_ranks(plan.own.step.account.at_peak, group)});
  };
  for (const auto& form : head_forms()) {
    if (form.is_whole || &form == job.head.form) continue;
    predict(std::string(form.name), "head.parallel=" + std::string(form.name));
  }
  if (job.parallel.pipeline == 1 || job.head.form->is_whole) return forms;
  if (divides_head(job)) {
    predict("of the last stage", "head.over=last");
  } else {
    predict("of all stages", "head.over=all");
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
