#include "tandem/job/auto_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/joint_work.h"
#include "tandem/job/detail/measure_links.h"
#include "tandem/job/large_ranks.h"
#include "tandem/job/parts.h"
#include "tandem/job/pipeline_cut.h"
#include "tandem/job/rank_memory.h"
#include "tandem/models/model.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

using parallel::Axis;

constexpr int64_t kMostMicroBatches = 64;
constexpr int kMostRehearsed = 24;  // plans of one search
constexpr double kDoubt = 1.25;     // by which an estimate of bytes may be too high
constexpr size_t kMostOfFront = 8;

using Words = std::vector<std::string>;

/// Those that divide n, from 1 on.
std::vector<int> divisors(int n) {
  std::vector<int> all;
  for (int i = 1; i <= n; ++i) {
    if (n % i == 0) all.push_back(i);
  }
  return all;
}

/// What a setting may be: what it was given, or each of `some`.
Words choices(const settings::Settings& settings, const char* key, const Words& some) {
  if (settings.given(key)) return {settings::format_value(settings.get(key))};
  return some;
}

/// 1, 2, 4, ... images of a rank at least one each.
Words micro_batch_choices(const Job& job, int batch_ranks, int pipeline) {
  Words some;
  const int64_t most = std::min(kMostMicroBatches, std::max<int64_t>(1, job.training.batch / batch_ranks));
  for (int64_t count = 1; count <= most; count *= 2) {
    if (count >= pipeline || 2 * count > most) some.push_back(std::to_string(count));
  }
  return choices(job.settings, "train.accumulate", some);
}

/// Each of `words` with each of the choices of one more setting.
std::vector<Words> with_each(const std::vector<Words>& words, const std::string& key, const Words& choices) {
  std::vector<Words> all;
  for (const auto& some : words) {
    for (const auto& choice : choices) {
      all.push_back(some);
      all.back().push_back(key + "=" + choice);
    }
  }
  return all;
}

Words training_schedules() {
  Words names;
  for (const auto& schedule : pipeline::schedules()) {
    if (schedule.has_backward) names.emplace_back(schedule.name);
  }
  return names;
}

/// Those that train any job in each step as one device, on so many ranks that share a batch.
Words strategies_of(int batch_ranks) {
  Words names;
  for (const auto& strategy : parallel::strategies()) {
    if (strategy.takes_gradients && (batch_ranks > 1 || !strategy.divides)) names.emplace_back(strategy.name);
  }
  return names;
}

/// All ways to divide the job over one mesh, some of which it cannot have.
std::vector<Words> plans_of_mesh(const Job& job, int tensor, int pipeline) {
  const auto& settings = job.settings;
  const int batch_ranks = job.parallel.ranks / tensor / pipeline;
  std::vector<Words> all = {{"mesh.tensor=" + std::to_string(tensor), "mesh.pipeline=" + std::to_string(pipeline)}};
  all = with_each(all, "parallel", strategies_of(batch_ranks));
  all = with_each(all, "train.accumulate", micro_batch_choices(job, batch_ranks, pipeline));
  all = with_each(all, "recompute", choices(settings, "recompute", {"none", "sqrt", "all"}));
  if (pipeline == 1) return all;
  all = with_each(all, "head.over", choices(settings, "head.over", {"last", "all"}));
  return with_each(all, "pipeline.schedule", choices(settings, "pipeline.schedule", training_schedules()));
}

/// How many ranks may stand along an axis.
std::vector<int> sizes_of_axis(const Job& job, const char* key, Axis axis, int ranks) {
  if (job.settings.given(key)) {
    const auto given = static_cast<int>(job.settings.get_int(key));
    return ranks % given == 0 ? std::vector<int>{given} : std::vector<int>();
  }
  return models::axes_of(job.model.name).has(axis) ? divisors(ranks) : std::vector<int>{1};
}

std::vector<Words> candidates(const Job& job) {
  std::vector<Words> all;
  for (const int tensor : sizes_of_axis(job, "mesh.tensor", Axis::tensor, job.parallel.ranks)) {
    for (const int pipeline : sizes_of_axis(job, "mesh.pipeline", Axis::pipeline, job.parallel.ranks / tensor)) {
      for (auto& words : plans_of_mesh(job, tensor, pipeline)) all.push_back(std::move(words));
    }
  }
  return all;
}

SharedPlan plan_of(const Job& own, Words words, const StepEstimate& estimate) {
  const auto sizes = own.parallel.mesh(own.parallel.ranks);
  std::string cut;
  for (const auto& name : estimate.cut) cut += (cut.empty() ? "" : ",") + name;
  if (!cut.empty() && !own.settings.given("pipeline.cut")) words.push_back("pipeline.cut=" + cut);
  return {.words = std::move(words),
          .mesh = mesh_text(sizes),
          .schedule = sizes.pipeline > 1 ? own.settings.get_string("pipeline.schedule") : "",
          .strategy = std::string(own.parallel.strategy->name),
          .recompute = std::string(own.memory.recompute->name),
          .micro_batches = own.training.accumulate,
          .divides_head = divides_head(own),
          .seconds = estimate.seconds,
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
    plan.worst_block = peak.in_test ? "a test" : "block '" + peak.block + "'";
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

void check_some(const std::vector<SharedPlan>& plans, const std::string& fault) {
  if (!plans.empty()) return;
  throw SettingsError("parallel=auto finds no plan that the job can have: " + fault, "give parallel");
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
  const auto refuse = [](const std::string& what, const std::string& remedy) {
    throw SettingsError("parallel is auto " + what, remedy);
  };
  if (job.search) refuse("in a search of cells, wanted a strategy", "use parallel=ddp");
  if (job.parallel.device.is_cuda()) refuse("with device=cuda, whose times are not measured", "use parallel=ddp");
}

/// What is thrown elsewhere than by us reaches the other ranks, too.
SharedPlan chosen_plan(const Job& job, const DataShape& shape, const Links& links) {
  const auto limit = limit_of(job);
  try {
    const auto plans = search_plans(job, shape, {.by = CutBy::time, .links = links, .limit = limit});
    if (!plans.chosen) refuse_limit(plans, *limit);
    return *plans.chosen;
  } catch (const c10::Error& error) {
    throw SettingsError(std::string("parallel=auto: ") + error.what_without_backtrace(), "give parallel");
  }
}

}  // namespace

std::optional<SharedPlan> settle_plan(Job& job, const DataShape& shape, comm::ProcessGroup& group) {
  if (!is_auto(job)) return std::nullopt;
  check_can_measure(job);
  const auto links = measure_links(group);
  SharedPlan plan;
  comm::on_leader(group, [&] { plan = chosen_plan(job, shape, links); });
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
    throw SettingsError("memory.limit has several numbers with parallel=auto, wanted one for all ranks",
                        "give the smallest");
  }
  return limits.front();
}

SharedPlans search_plans(const Job& job, const DataShape& shape, const SearchOptions& options) {
  PlanEstimate estimates(shape, options.by, options.links);
  std::vector<SharedPlan> plans;
  SharedPlans found;
  found.lower_bound = std::numeric_limits<double>::infinity();
  std::string fault;
  for (const auto& words : candidates(job)) {
    unless_refused(fault, [&] {
      const auto own = with_plan(job, words);
      plans.push_back(plan_of(own, words, estimates.of(own)));
      found.lower_bound = std::min(found.lower_bound, estimates.lower_bound(own));
    });
  }
  found.estimated = std::ssize(plans);
  check_some(plans, fault);
  std::ranges::stable_sort(plans, {}, &SharedPlan::seconds);
  const auto rehearse_next = [&](SharedPlan& plan) {
    if (plan.is_rehearsed || plan.peak_bytes == kRefused) return;
    ++found.rehearsed;
    if (!unless_refused(fault, [&] { rehearse(plan, job, shape); })) plan.peak_bytes = kRefused;
  };
  for (const auto i : some_of(front_of(plans), kMostOfFront)) rehearse_next(plans[i]);
  for (auto& plan : plans) {
    if (found.rehearsed == kMostRehearsed) break;
    const auto about = static_cast<double>(plan.peak_bytes);
    if (options.limit && about > static_cast<double>(*options.limit) * (plan.is_rehearsed ? 1 : kDoubt)) continue;
    rehearse_next(plan);
    if (plan.is_rehearsed && (!options.limit || plan.peak_bytes <= *options.limit)) break;
  }
  std::erase_if(plans, [](const auto& plan) { return !plan.is_rehearsed; });
  check_some(plans, fault);
  for (const auto i : front_of(plans)) found.front.push_back(plans[i]);
  const auto fits = [&](const SharedPlan& plan) { return !options.limit || plan.peak_bytes <= *options.limit; };
  if (const auto at = std::ranges::find_if(found.front, fits); at != found.front.end()) found.chosen = *at;
  return found;
}

void refuse_limit(const SharedPlans& plans, int64_t limit) {
  const auto& least = plans.front.back();
  throw SettingsError("memory.limit is " + format_count(limit) + " bytes, wanted at least " +
                          format_count(least.peak_bytes) + ", which of the plans tried the one with the fewest (" +
                          least.text() + ") needs on the ranks of stage " + std::to_string(least.worst) + ", in " +
                          least.worst_block,
                      "give more memory or ranks, or lower train.batch");
}

}  // namespace tandem::job
