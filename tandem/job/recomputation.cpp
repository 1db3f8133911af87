#include "tandem/job/recomputation.h"

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/joint_work.h"
#include "tandem/comm/split.h"
#include "tandem/job/rank_memory.h"

namespace tandem::job {
namespace {

using memory::RecomputePlan;

/// Chooses for one job; `budget` is of activations, as highest() tells.
class Choice {
 public:
  Choice(const Job& job, const DataShape& shape, const std::vector<int64_t>& counts)
      : job_(job), shape_(shape), counts_(counts), stages_(rehearse_stages(job, shape, counts)) {}

  RecomputePlan within(int64_t budget) const {
    constexpr int kAttempts = 4;  // the stages' bytes are bounds, and seldom too low
    int64_t allowed = budget;
    const auto least = memory::least_budget(stages_);
    for (int attempt = 0; attempt < kAttempts && allowed >= least.bytes; ++attempt) {
      auto plan = plan_optimal(stages_, allowed);
      const auto highest = highest_of(plan);
      if (highest <= budget) return plan;
      allowed -= highest - budget;
    }
    auto plan = plan_optimal(stages_, least.bytes);
    const auto highest = highest_of(plan);
    if (highest <= budget) return plan;
    const auto* phase = least.at.what == memory::PlanStep::What::backward ? "backward" : "forward";
    throw SettingsError("memory.budget is " + format_count(budget) + " bytes, wanted at least " +
                            format_count(highest) + ", which the " + phase + " of block '" +
                            stages_[static_cast<size_t>(least.at.stage)].name + "' needs",
                        "raise it, or lower train.batch");
  }

  RecomputePlan plan() const {
    const auto& memory = job_.memory;
    return memory.recompute->has_budget ? within(memory.budget.value()) : memory.recompute->plan(stages_, 0);
  }

 private:
  int64_t highest_of(const RecomputePlan& plan) const {
    auto unlimited = job_;
    unlimited.memory.budget.reset();
    const auto memory = rehearse_rank(unlimited, shape_, 0, {counts_, plan}, {.batches = job_.data.prefetch + 1});
    return memory.step.highest[static_cast<size_t>(Category::activations)];
  }

  const Job& job_;
  const DataShape& shape_;
  const std::vector<int64_t>& counts_;
  const std::vector<memory::Stage> stages_;
};

}  // namespace

RecomputePlan choose_recomputation(const Job& job, const DataShape& shape, const std::vector<int64_t>& counts) {
  if (!job.memory.recomputes()) return {};
  return Choice(job, shape, counts).plan();
}

RecomputePlan choose_recomputation(const Job& job, const DataShape& shape, comm::ProcessGroup& group) {
  if (!job.memory.recomputes()) return {};
  std::string plan, fault;
  {
    comm::JointWork work(group);
    try {
      if (group.rank() == 0)
        plan = to_text(choose_recomputation(job, shape, comm::split_sizes(shape.classes, group.size())));
    } catch (const SettingsError& error) {
      fault = message_of(error);
    }
    work.end(0);
  }
  fault = comm::broadcast_text(fault, 0, group);
  if (!fault.empty()) throw SettingsError(fault);
  return memory::parse_plan(comm::broadcast_text(plan, 0, group));
}

}  // namespace tandem::job
