#include "tandem/job/recomputation.h"

#include <map>

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
class PlanChoice {
 public:
  PlanChoice(const Job& job, const DataShape& shape, const std::vector<int64_t>& counts, int64_t batches)
      : job_(job),
        shape_(shape),
        counts_(counts),
        batches_(batches > 0 ? batches : job.data.prefetch + 1),
        stages_(rehearse_stages(job, shape, counts, job.memory.recompute->has_budget).front()) {}

  Recomputation best() {
    const auto& memory = job_.memory;
    const bool cuts_blocks = memory.recompute->has_budget;
    auto plan = cuts_blocks ? within(memory.budget.value())
                            : memory::plan_by(*memory.recompute, stages_, 0, /*ends_with_loss=*/true);
    const auto seconds = [&](const RecomputePlan& of) { return static_cast<double>(cost_of(of, stages_).nanoseconds); };
    const double slowdown = seconds(plan) / seconds(plan_none(stages_));
    std::optional<memory::Composition> step;
    if (const auto known = steps_.find(to_text(plan)); known != steps_.end()) step = known->second;
    return {cuts_blocks ? std::move(plan) : in_parts(plan, stages_), slowdown, std::move(step)};
  }

 private:
  /// A plan that may keep a budget.
  struct Candidate {
    RecomputePlan plan;
    int64_t highest = 0;  // bytes, by a rehearsal
    memory::PlanStep at;  // where the least plan has its peak
  };

  RecomputePlan within(int64_t budget) {
    const auto best = best_within(budget);
    if (best.highest <= budget) return best.plan;
    const auto* phase = best.at.what == memory::PlanStep::What::backward ? "backward" : "forward";
    throw SettingsError("memory.budget is " + format_count(budget) + " bytes, wanted at least " +
                            format_count(least_enough(budget, best.highest)) + ", which the " + phase + " of block '" +
                            stages_[static_cast<size_t>(best.at.stage)].name + "' needs",
                        "raise it, or lower train.batch");
  }

  /// One that needs more than the budget if none is found.
  Candidate best_within(int64_t budget) {
    if (keeps_all_within(budget)) return {.plan = plan_none(stages_), .highest = highest_of(plan_none(stages_))};
    auto best = candidate(stages_, budget);
    if (job_.memory.recompute->is_lossy) {  // its bounds are looser: a plain plan may be faster within the budget
      auto plain = candidate(with_plain_ways(), budget);
      if (is_better(plain, best, budget)) best = std::move(plain);
    }
    return best;
  }

  /// A budget that is enough, while one byte less is not. `enough` is, `too_little` is not.
  int64_t least_enough(int64_t too_little, int64_t enough) {
    while (enough - too_little > 1) {
      const auto between = too_little + (enough - too_little) / 2;
      (best_within(between).highest <= between ? enough : too_little) = between;
    }
    return enough;
  }

  Candidate candidate(const std::vector<memory::Stage>& stages, int64_t budget) {
    constexpr int kAttempts = 4;  // the stages' bytes are bounds, and seldom too low
    const auto least = memory::least_budget(stages);
    Candidate found{.at = least.at};
    int64_t allowed = budget;
    for (int attempt = 0; attempt < kAttempts && allowed >= least.bytes; ++attempt) {
      found.plan = plan_optimal(stages, allowed);
      found.highest = highest_of(found.plan);
      if (found.highest <= budget) return found;
      allowed -= found.highest - budget;
    }
    found.plan = plan_optimal(stages, least.bytes);
    found.highest = highest_of(found.plan);
    return found;
  }

  bool is_better(const Candidate& one, const Candidate& other, int64_t budget) const {
    if (one.highest > budget || other.highest > budget) return one.highest < other.highest;
    return cost_of(one.plan, stages_).nanoseconds < cost_of(other.plan, stages_).nanoseconds;
  }

  std::vector<memory::Stage> with_plain_ways() const {
    auto stages = stages_;
    for (auto& stage : stages) stage.keeps.resize(1);
    return stages;
  }

  /// The stages' bounds add up, most of all if nothing is recomputed: a budget below their sum may be enough for it.
  bool keeps_all_within(int64_t budget) {
    const auto none = plan_none(stages_);
    return cost_of(none, stages_).peak / 4 * 3 <= budget && highest_of(none) <= budget;
  }

  int64_t highest_of(const RecomputePlan& plan) {
    const auto [known, is_new] = steps_.try_emplace(to_text(plan));
    if (is_new) {
      auto unlimited = job_;
      unlimited.memory.budget.reset();
      known->second = rehearse_rank(unlimited, shape_, 0, {counts_, plan}, {.batches = batches_}).step;
    }
    return known->second.highest[static_cast<size_t>(Category::activations)];
  }

  const Job& job_;
  const DataShape& shape_;
  const std::vector<int64_t>& counts_;
  const int64_t batches_;
  const std::vector<memory::Stage> stages_;
  std::map<std::string, memory::Composition> steps_;  // of plans that were rehearsed
};

/// Of the stages of a pipeline that a rank holds.
Recomputation choose_in_stages(const Job& job, const DataShape& shape, const std::vector<int64_t>& counts, int rank) {
  const auto chains = rehearse_stages(job, shape, counts, /*in_parts=*/false, rank);
  Recomputation all;
  int64_t with_plan = 0, plain = 0;
  for (size_t i = 0; i < chains.size(); ++i) {
    const auto& stages = chains[i];
    const bool has_loss = i + 1 == chains.size() && !divides_head(job) && has_head(job, rank, job.parallel.ranks);
    const auto plan = memory::plan_by(*job.memory.recompute, stages, 0, has_loss);
    with_plan += cost_of(plan, stages).nanoseconds;
    plain += cost_of(plan_none(stages), stages).nanoseconds;
    all.plan = joined(std::move(all.plan), in_parts(plan, stages));
  }
  all.slowdown = static_cast<double>(with_plan) / static_cast<double>(plain);
  return all;
}

}  // namespace

Recomputation choose_recomputation(const Job& job, const DataShape& shape, const std::vector<int64_t>& counts,
                                   int64_t batches, int rank) {
  if (!job.memory.recomputes()) return {};
  if (job.parallel.pipeline > 1) return choose_in_stages(job, shape, counts, rank);
  return PlanChoice(job, shape, counts, batches).best();
}

Recomputation choose_recomputation(const Job& job, const DataShape& shape, comm::ProcessGroup& group, int64_t batches) {
  if (!job.memory.recomputes()) return {};
  Recomputation own;
  if (job.parallel.pipeline > 1) {
    comm::jointly(group, [&] {
      own = choose_in_stages(job, shape, even_counts(job, shape.classes, group.size()), group.rank());
    });
    own.slowdown = comm::reduce_number(own.slowdown, comm::Reduce::max, group);
    return own;
  }
  comm::on_leader(
      group, [&] { own = choose_recomputation(job, shape, even_counts(job, shape.classes, group.size()), batches); });
  own.plan = memory::parse_plan(comm::broadcast_text(to_text(own.plan), 0, group));
  own.slowdown = comm::reduce_number(own.slowdown, comm::Reduce::max, group);
  return own;
}

}  // namespace tandem::job
