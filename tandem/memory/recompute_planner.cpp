#include <c10/util/Exception.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/memory/detail/plan_check.h"
#include "tandem/memory/detail/plan_search.h"
#include "tandem/memory/recompute_plan.h"

namespace tandem::memory {
namespace {

std::vector<Stage> checked(std::vector<Stage> stages) {
  detail::check_stages(stages);
  return stages;
}

[[noreturn]] void refuse(int64_t budget, const std::vector<Stage>& stages) {
  const auto least = least_budget(stages);
  const auto* run = least.at.what == PlanStep::What::backward ? "backward" : "forward";
  throw SettingsError("memory budget of activations is " + format_count(budget) + " B, wanted at least " +
                          format_count(least.bytes) + " B (" + format_bytes(least.bytes) + "), which the " + run +
                          " of block " + stages[least.at.stage].name + " needs",
                      "raise the budget or lower the batch size");
}

}  // namespace

struct RecomputePlanner::Impl {
  detail::PlanSearch search;
  int64_t from, to;
};

RecomputePlanner::RecomputePlanner(std::vector<Stage> stages, int64_t from, int64_t to)
    : impl_(new Impl{{checked(std::move(stages)), from, to}, from, to}) {}
RecomputePlanner::~RecomputePlanner() = default;

const std::vector<Tradeoff>& RecomputePlanner::tradeoffs() const { return impl_->search.frontier(); }

RecomputePlan RecomputePlanner::plan(int64_t budget) const {
  TORCH_CHECK_VALUE(budget >= impl_->from && budget <= impl_->to, "budget is ", budget, " B, wanted ", impl_->from,
                    " to ", impl_->to, ", the range of the planner");
  if (detail::time_within(tradeoffs(), budget) == detail::kNever) refuse(budget, impl_->search.stages());
  return impl_->search.plan(budget);
}

RecomputePlan plan_optimal(const std::vector<Stage>& stages, int64_t budget) {
  return RecomputePlanner(stages, budget, budget).plan(budget);
}

LeastBudget least_budget(const std::vector<Stage>& stages) {
  auto timeless = stages;  // without times, each frontier is its least bytes
  for (auto& stage : timeless) {
    stage.forward = 0;
    for (auto& keep : stage.keeps) keep.forward = keep.backward = keep.spared = 0;
  }
  const RecomputePlanner planner(std::move(timeless));
  const int64_t bytes = planner.tradeoffs().at(0).bytes;
  const auto cost = cost_of(planner.plan(bytes), stages);
  return {cost.peak, cost.at_peak};
}

const std::vector<PlanMethod>& plan_methods() {
  using Stages = const std::vector<Stage>&;
  static const std::vector<PlanMethod> methods = {
      {"none", false, [](Stages stages, int64_t) { return plan_none(stages); }},
      {"all", false, [](Stages stages, int64_t) { return plan_all(stages); }, false, true},
      {"sqrt", false, [](Stages stages, int64_t) { return plan_sqrt(stages); }},
      {"log", false, [](Stages stages, int64_t) { return plan_log(stages); }},
      {"optimal", true, [](Stages stages, int64_t budget) { return plan_optimal(stages, budget); }},
      {"lossy", true, [](Stages stages, int64_t budget) { return plan_optimal(stages, budget); }, true}};
  return methods;
}

}  // namespace tandem::memory
