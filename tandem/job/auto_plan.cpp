#include "tandem/job/auto_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/joint_work.h"
#include "tandem/job/detail/plan_candidates.h"
#include "tandem/job/large_ranks.h"
#include "tandem/job/parts.h"
#include "tandem/job/pipeline_cut.h"
#include "tandem/job/rank_memory.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

using parallel::Axis;

constexpr int64_t kMostRehearsed = 32;  // plans of one search
constexpr double kDoubt = 1.25;         // by which an estimate of bytes may be too high
constexpr size_t kMostOfFront = 8;
const std::string kTest = "a test";

using Words = std::vector<std::string>;

std::string schedule_text(const Job& job) {
  const auto& name = job.settings.get_string("pipeline.schedule");
  const auto* schedule = job.pipeline.schedule;
  return schedule != nullptr && schedule->takes_held ? name + " " + std::to_string(job.pipeline.held) : name;
}

/// Whether the plan needs the cut of its estimate in its settings: it is not that which these give.
bool keeps_cut(const Job& job, const Job& own) {
  return own.pipeline.measures_cut || (is_auto(job) && own.pipeline.cut.empty());
}

SharedPlan plan_of(const Job& own, Words words, const StepEstimate& estimate, bool keeps_cut) {
  const auto sizes = own.parallel.mesh(own.parallel.ranks);
  if (!estimate.cut.empty() && keeps_cut) words.push_back("pipeline.cut=" + settings::format_value(estimate.cut));
  return {.words = std::move(words),
          .mesh = mesh_text(sizes),
          .schedule = sizes.pipeline > 1 ? schedule_text(own) : "",
          .strategy = std::string(own.parallel.strategy->name),
          .recompute = std::string(own.memory.recompute->name),
          .micro_batches = own.training.accumulate,
          .divides_head = divides_head(own),
          .seconds = estimate.seconds,
          .stages = estimate.stages,
          .after_seconds = estimate.after,
          .peak_bytes = estimate.peak_bytes,
          .worst = estimate.worst};
}

/// To the byte, if the job is not too large.
void rehearse(SharedPlan& plan, const Job& of, const DataShape& shape) {
  const auto job = with_plan(of, plan.words);
  LargeRanks large(job, shape);
  PlannedRanks ranks(job, shape, large);
  const auto counts = even_counts(job, shape.classes, job.parallel.ranks);
  const auto sizes = job.parallel.mesh(job.parallel.ranks);
  plan.peak_bytes = 0;
  for (int coordinate = 0; coordinate < sizes.pipeline; ++coordinate) {
    const int first = sizes.ranks_along({Axis::pipeline}, 0)[static_cast<size_t>(coordinate)];
    const auto& peak = ranks.rank(first, counts).peak;
    if (peak.bytes <= plan.peak_bytes) continue;
    plan.peak_bytes = peak.bytes;
    plan.worst = coordinate;
    plan.worst_block = peak.in_test ? kTest : "block '" + peak.block + "'";
  }
  plan.is_rehearsed = true;
}

/// Of a plan that turns out to be none.
constexpr int64_t kRefused = std::numeric_limits<int64_t>::max();

/// Returns false, and tells the first fault, if there is none: the job cannot have it, its model has fewer parts than
/// stages, or a rank one image, which has no statistics.
template <class Work>
bool unless_refused(std::string& fault, const Work& work) {
  const auto note = [&](const std::string& text) {
    if (fault.empty()) fault = text;
    return false;
  };
  try {
    work();
    return true;
  } catch (const SettingsError& error) {
    return note(message_of(error));
  } catch (const c10::ValueError& error) {
    return note(error.what_without_backtrace());
  }
}

std::string remedy_of(const Job& job) { return is_auto(job) ? "give parallel" : "give pipeline.schedule"; }

void check_some(const std::vector<SharedPlan>& plans, const Job& job, const std::string& fault) {
  if (!plans.empty()) return;
  throw SettingsError(searched_setting(job) + ", but no plan is one that the job can have: " + fault, remedy_of(job));
}

/// Those that no other is both faster and smaller than. `plans`: the fastest first.
std::vector<size_t> front_of(const std::vector<SharedPlan>& plans) {
  std::vector<size_t> front;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].peak_bytes >= least) continue;
    least = plans[i].peak_bytes;
    front.push_back(i);
  }
  return front;
}

/// Some of many, the first and the last among them.
std::vector<size_t> some_of(const std::vector<size_t>& all, size_t most) {
  if (all.size() <= most) return all;
  std::vector<size_t> some;
  for (size_t i = 0; i < most; ++i) some.push_back(all[i * (all.size() - 1) / (most - 1)]);
  return some;
}

}  // namespace

std::string mesh_text(const parallel::MeshSizes& sizes) {
  std::string text;
  for (const auto axis : {Axis::data, Axis::shard, Axis::tensor, Axis::pipeline}) {
    if (sizes.size(axis) == 1) continue;
    text += (text.empty() ? "" : " x ") + std::string(name_of(axis)) + " " + std::to_string(sizes.size(axis));
  }
  return text.empty() ? "1 rank" : text;
}

Job with_plan(const Job& job, const std::vector<std::string>& words) {
  auto settings = job.settings;
  settings.set("memory.limit", "");
  settings.apply(words);
  auto own = read_job(std::move(settings));
  check_training(own);
  own.memory.guard = limit_of(job);
  return own;
}

namespace {

void check_can_measure(const Job& job) {
  const auto refuse = [&](const std::string& what) {
    throw SettingsError(searched_setting(job) + " " + what, remedy_of(job));
  };
  if (job.search) refuse("in a search of cells, wanted a strategy");
  if (job.parallel.device.is_cuda()) refuse("with device=cuda, whose times are not measured");
}

/// What is thrown elsewhere than by us reaches the other ranks, too.
SharedPlan chosen_plan(const Job& job, PlanEstimate& estimates) {
  const auto limit = limit_of(job);
  try {
    const auto plans = search_plans(job, estimates, {.limit = limit, .wants_front = false});
    if (plans.fitting.empty()) refuse_limit(job, plans, *limit);
    return plans.fitting.front();
  } catch (const c10::Error& error) {
    throw SettingsError(searched_setting(job) + ": " + error.what_without_backtrace(), remedy_of(job));
  }
}

}  // namespace

std::optional<SharedPlan> settle_plan(Job& job, const DataShape& shape, comm::ProcessGroup& group) {
  if (!needs_search(job)) return std::nullopt;
  check_can_measure(job);
  auto estimates = measure_plans(job, shape, group);
  SharedPlan plan;
  comm::on_leader(group, [&] { plan = chosen_plan(job, estimates); });
  std::string words;
  for (const auto& word : plan.words) words += word + "\n";
  std::istringstream lines(comm::broadcast_text(words, 0, group));
  plan.words.clear();
  for (std::string line; std::getline(lines, line);) plan.words.push_back(line);
  job = with_plan(job, plan.words);
  return plan;
}

std::string SharedPlan::text() const {
  std::string text = strategy + ", " + mesh;
  if (!schedule.empty()) text += ", " + schedule;
  text += ", " + std::to_string(micro_batches) + (micro_batches == 1 ? " micro-batch" : " micro-batches");
  if (recompute != "none") text += ", recompute=" + recompute;
  return text + (divides_head ? ", head over all" : "");
}

std::optional<int64_t> limit_of(const Job& job) {
  const auto& limits = job.memory.limits;
  if (limits.empty()) return std::nullopt;
  if (std::ranges::adjacent_find(limits, std::not_equal_to()) != limits.end()) {
    throw SettingsError("memory.limit has several numbers and " + searched_setting(job) + ", wanted one for all ranks",
                        "give the smallest");
  }
  return limits.front();
}

PlanEstimate measure_plans(const Job& job, const DataShape& shape, comm::ProcessGroup& group) {
  PlanEstimate estimates(shape);
  std::string fault;
  for (const auto& words : plans_to_measure(job)) {
    unless_refused(fault, [&] { estimates.measure(with_plan(job, words), group); });  // by all ranks, or none
  }
  return estimates;
}

namespace {

class PlanSearch {
 public:
  PlanSearch(const Job& job, PlanEstimate& estimates, const SearchOptions& options)
      : job_(job), estimates_(estimates), options_(options) {}

  SharedPlans run() {
    estimate_all();
    found_.estimated = std::ssize(plans_);
    check_some(plans_, job_, fault_);
    std::ranges::stable_sort(plans_, {}, &SharedPlan::seconds);
    if (options_.wants_front) rehearse_front();
    take_fitting();
    if (found_.fitting.empty()) {
      rehearse_front();
      take_fitting();
    }
    std::erase_if(plans_, [](const auto& plan) { return !plan.is_rehearsed; });
    check_some(plans_, job_, fault_);
    for (const auto i : front_of(plans_)) found_.front.push_back(plans_[i]);
    return std::move(found_);
  }

 private:
  void estimate_all() {
    found_.lower_bound = std::numeric_limits<double>::infinity();
    for (const auto& words : candidate_plans(job_)) {
      unless_refused(fault_, [&] {
        auto own = with_plan(job_, words);
        if (!is_auto(job_)) take_cut(own);
        plans_.push_back(plan_of(own, words, estimates_.of(own), keeps_cut(job_, own)));
        found_.lower_bound = std::min(found_.lower_bound, estimates_.lower_bound(own));
      });
    }
  }

  /// That which the job would have with as many stages.
  void take_cut(Job& own) {
    if (!own.pipeline.cut.empty()) return;
    auto& cut = cuts_[stage_ranks(own).size()];
    if (cut.empty()) cut = cut_of(own, estimates_.shape());
    own.pipeline.cut = cut;
  }

  void rehearse_once(SharedPlan& plan) {
    if (plan.is_rehearsed || plan.peak_bytes == kRefused) return;
    if (!unless_refused(fault_, [&] { rehearse(plan, job_, estimates_.shape()); })) plan.peak_bytes = kRefused;
    found_.rehearsed += plan.is_rehearsed ? 1 : 0;
  }

  void rehearse_front() {
    for (const auto i : some_of(front_of(plans_), kMostOfFront)) rehearse_once(plans_[i]);
  }

  bool fits(const SharedPlan& plan) const { return !options_.limit || plan.peak_bytes <= *options_.limit; }

  /// Of one that is not rehearsed yet. Schedules alone are few, and none is left out.
  bool may_fit(const SharedPlan& plan) const {
    if (!is_auto(job_) || !options_.limit) return true;
    return static_cast<double>(plan.peak_bytes) <= kDoubt * static_cast<double>(*options_.limit);
  }

  void take_fitting() {
    for (auto& plan : plans_) {
      if (std::ssize(found_.fitting) == options_.wanted) return;
      const bool is_bounded = is_auto(job_) && found_.rehearsed >= kMostRehearsed;
      if (!is_bounded && may_fit(plan)) rehearse_once(plan);
      if (plan.is_rehearsed && fits(plan)) found_.fitting.push_back(plan);
    }
  }

  const Job& job_;
  PlanEstimate& estimates_;
  const SearchOptions& options_;
  std::vector<SharedPlan> plans_;
  SharedPlans found_;
  std::map<size_t, std::vector<std::string>> cuts_;  // by stages
  std::string fault_;                                // the first plan's that the job cannot have
};

}  // namespace

SharedPlans search_plans(const Job& job, PlanEstimate& estimates, const SearchOptions& options) {
  return PlanSearch(job, estimates, options).run();
}

void refuse_limit(const Job& job, const SharedPlans& plans, int64_t limit) {
  const auto& least = plans.front.back();
  const std::string others = is_auto(job) ? "" : ", recompute=all, parallel=auto";
  const std::string batch = least.worst_block == kTest ? "eval.batch" : "train.batch";
  throw SettingsError("memory.limit is " + format_count(limit) + " bytes, wanted at least " +
                          format_count(least.peak_bytes) + ", which of the plans tried the one with the fewest (" +
                          least.text() + ") needs on the ranks of stage " + std::to_string(least.worst) + ", in " +
                          least.worst_block,
                      "give more memory or ranks" + others + ", or lower " + batch);
}

}  // namespace tandem::job
