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

/// Chooses for one job.
class Choice {
 public:
  Choice(const Job& job, const DataShape& shape, const std::vector<int64_t>& counts)
      : job_(job),
        shape_(shape),
        counts_(counts),
        stages_(rehearse_stages(job, shape, counts, job.memory.recompute->has_budget)) {}

  Recomputation best() const {
    const auto& memory = job_.memory;
    const bool cuts_blocks = memory.recompute->has_budget;
    auto plan = cuts_blocks ? within(memory.budget.value()) : memory.recompute->plan(stages_, 0);
    const auto seconds = [&](const RecomputePlan& of) { return static_cast<double>(cost_of(of, stages_).nanoseconds); };
    const double slowdown = seconds(plan) / seconds(plan_none(stages_));
    return {cuts_blocks ? std::move(plan) : in_parts(plan, stages_), slowdown};
  }

 private:
  RecomputePlan within(int64_t budget) const {
    if (keeps_all_within(budget)) return plan_none(stages_);
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

  /// The stages' bounds add up, most of all if nothing is recomputed: a budget below their sum may be enough for it.
  bool keeps_all_within(int64_t budget) const {
    const auto none = plan_none(stages_);
    return cost_of(none, stages_).peak / 4 * 3 <= budget && highest_of(none) <= budget;
  }

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

Recomputation choose_recomputation(const Job& job, const DataShape& shape, const std::vector<int64_t>& counts) {
  if (!job.memory.recomputes()) return {};
  return Choice(job, shape, counts).best();
}

Recomputation choose_recomputation(const Job& job, const DataShape& shape, comm::ProcessGroup& group) {
  if (!job.memory.recomputes()) return {};
  Recomputation own;
  std::string fault;
  {
    comm::JointWork work(group);
    try {
      const auto even = comm::split_sizes(shape.classes, group.size());
      if (group.rank() == 0) own = choose_recomputation(job, shape, even);
    } catch (const SettingsError& error) {
      fault = message_of(error);
    }
    work.end(0);
  }
  fault = comm::broadcast_text(fault, 0, group);
  if (!fault.empty()) throw SettingsError(fault);
  own.plan = memory::parse_plan(comm::broadcast_text(to_text(own.plan), 0, group));
  own.slowdown = comm::reduce_number(own.slowdown, comm::Reduce::max, group);
  return own;
}

}  // namespace tandem::job
