#include <ATen/Parallel.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/base/table.h"
#include "tandem/cli/command.h"
#include "tandem/cli/plan_schedule.h"
#include "tandem/cli/plan_search.h"
#include "tandem/cli/result.h"
#include "tandem/cli/run/ranks.h"
#include "tandem/cli/run/step_memory.h"
#include "tandem/job/auto_plan.h"
#include "tandem/job/class_split.h"
#include "tandem/job/form_memory.h"
#include "tandem/job/large_ranks.h"
#include "tandem/job/parts.h"
#include "tandem/job/pipeline_cut.h"
#include "tandem/job/rank_memory.h"
#include "tandem/job/ranks.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/table.h"
#include "tandem/report/chart.h"
#include "tandem/storage/named_file.h"

namespace tandem::cli {
namespace {

struct Planned {
  job::DataShape shape;
  std::vector<int64_t> counts, most;  // most: empty without a limit
  bool is_most_exact = true;
  std::vector<job::PlannedRank> ranks;
  bool are_rehearsed = true;  // all ranks
  bool are_drawn = false;     // the sampled classes of a step
  bool is_whole = false;      // each rank holds all classes
  bool is_unplanned = false;  // recompute is given, but the job is too large to plan it here
  job::Recomputation recomputation;
  std::vector<job::FormMemory> forms;
  bool is_limited = false;
  std::string fault;  // why the job does not fit; empty: it fits

  bool is_exact() const { return are_rehearsed && !are_drawn; }
  /// What is recomputed later may make room.
  bool is_judged() const { return !is_unplanned || (is_limited && fault.empty()); }
};

Planned plan_of(const job::Job& job) {
  at::set_num_threads(job::threads_of(job.parallel));  // kernels share their work, and their memory, by it
  Planned planned;
  planned.shape = shape_of(job);
  const auto classes = planned.shape.classes;
  planned.is_whole = job.head.form->is_whole;
  planned.counts = even_counts(job, classes, job.parallel.ranks);
  job::LargeRanks large(job, planned.shape);
  job::PlannedRanks rehearsed(job, planned.shape, large);
  planned.recomputation = rehearsed.recomputation();
  planned.is_unplanned = job.memory.recomputes() && planned.recomputation.plan.empty();
  planned.is_limited = job.memory.is_limited();
  if (planned.is_limited) {
    if (!planned.is_whole && !planned.is_unplanned) planned.most = largest_counts(job, classes, rehearsed.peaks());
    planned.is_most_exact = rehearsed.are_rehearsed();
    try {
      const auto about = [&](const std::vector<int64_t>& counts) { return large.peaks(counts); };
      planned.counts = fit_counts(job, classes, about, rehearsed.peaks());
    } catch (const SettingsError& error) {
      planned.fault = message_of(error);
    }
  }
  planned.ranks = rehearsed.ranks(planned.counts);
  planned.counts = with_copies(job, planned.counts);
  planned.forms = compare_forms(job, planned.ranks, planned.counts, large);
  if (planned.is_whole) planned.counts.assign(planned.counts.size(), classes);
  planned.are_rehearsed = std::ranges::all_of(planned.ranks, &job::PlannedRank::is_rehearsed);
  planned.are_drawn = rehearsed.are_drawn();
  return planned;
}

/// Where nothing was rehearsed, nothing is known between steps.
int64_t gathered_bytes_of(const job::PlannedRank& rank) {
  return rank.step.live_bytes() == 0 ? 0 : gathered_bytes(rank.step.at_peak, rank.step.live);
}

nlohmann::json rank_json(const job::PlannedRank& rank) {
  const auto& account = rank.step;
  auto json = memory_json(account.at_peak);
  json["predicted_peak_bytes"] = account.peak_bytes();
  json["peak_block"] = rank.peak.in_test ? "" : rank.peak.block;
  json["gathered_bytes"] = gathered_bytes_of(rank);
  json["test_peak_bytes"] = rank.test == 0 ? nlohmann::json() : nlohmann::json(rank.test);
  json["blocks"] = nlohmann::json::object();
  for (const auto& bytes : account.blocks) {
    if (total_of(bytes.at_peak) > 0) {
      json["blocks"][block_name(bytes.block)] = memory_json(bytes.at_peak)["categories"];
    }
  }
  return json;
}

nlohmann::json result_of(const job::Job& job, const Planned& planned) {
  const auto row = job.model.features * static_cast<int64_t>(c10::elementSize(job.training.precision.type));
  nlohmann::json result = {{"classes", planned.shape.classes},
                           {"weight_bytes", planned.shape.classes * row},
                           {"fits", planned.fault.empty()},
                           {"largest_classes", nullptr},
                           {"is_exact", planned.is_exact()},
                           {"ranks", nlohmann::json::array()},
                           {"recompute", recompute_json(planned.recomputation)},
                           {"forms", nlohmann::json::object()}};
  if (!planned.is_judged()) result["fits"] = nullptr;
  if (planned.is_unplanned) result["recompute"] = nullptr;
  for (size_t rank = 0; rank < planned.ranks.size(); ++rank) {
    auto one = rank_json(planned.ranks[rank]);
    one["classes"] = planned.counts[rank];
    one["weight_bytes"] = planned.counts[rank] * row;
    one["largest_classes"] = planned.most.empty() ? nlohmann::json() : nlohmann::json(planned.most[rank]);
    result["ranks"].push_back(one);
  }
  if (!planned.most.empty()) {
    result["largest_classes"] = std::accumulate(planned.most.begin(), planned.most.end(), int64_t{0});
  }
  for (const auto& form : planned.forms) {
    auto& ranks = result["forms"][form.name]["ranks"] = nlohmann::json::array();
    for (const auto& bytes : form.ranks) ranks.push_back(memory_json(bytes));
  }
  return result;
}

/// On memory.limit.
std::string verdict_text(const Planned& planned) {
  const std::string about = planned.are_rehearsed ? "  " : " (about)  ";
  if (planned.fault.empty()) return "fits" + about + "each rank stays within memory.limit";
  return (planned.is_unplanned ? "does not fit with nothing recomputed" : "does not fit") + about + planned.fault;
}

std::string text_of(const Planned& planned, const nlohmann::json& result) {
  std::string text = "classifier  " + format_count(planned.shape.classes) + " classes · weight " +
                     format_bytes(result["weight_bytes"]) + (planned.is_whole ? ", on each rank" : ", split ") +
                     (planned.is_whole ? "" : job::counts_text(planned.counts));
  std::vector<CategoryBytes> peaks;
  int64_t step = 0, test = 0;
  for (const auto& rank : planned.ranks) {
    peaks.push_back(rank.step.at_peak);
    step = std::max(step, rank.step.peak_bytes());
    test = std::max(test, rank.test);
  }
  text += "\n" + memory::memory_table(peaks);
  if (test > step) text += "a test needs more: " + format_bytes(test) + " on a rank at its peak, by eval.batch\n";
  const auto highest =
      std::ranges::max_element(planned.ranks, {}, [](const auto& rank) { return rank.step.peak_bytes(); });
  if (!highest->peak.in_test) {
    text += "peak of rank " + std::to_string(highest - planned.ranks.begin()) + " in block '" + highest->peak.block +
            "'" + gathered_text(gathered_bytes_of(*highest)) + "\n";
  }
  const auto recomputed = plan_text(planned.recomputation.plan);
  if (!recomputed.empty()) text += "recompute " + recomputed + "\n";
  if (planned.is_unplanned) {
    text +=
        "nothing recomputed in these numbers: the job is larger than plan rehearses; train plans before its first "
        "step\n";
  }
  if (!planned.are_rehearsed) {
    text += "approximate: larger than this machine can rehearse\n";
  } else if (planned.are_drawn) {
    text += "at most: each step draws its sampled classes\n";
  }
  text += "\n";
  const bool recomputes = planned.is_unplanned || !recomputed.empty();
  Table forms({recomputes ? "form of the head, nothing recomputed" : "form of the head", "peak of rank 0",
               "of the last rank", "of all"});
  for (const auto& form : planned.forms) {
    int64_t all = 0;
    for (const auto& bytes : form.ranks) {
      if (__builtin_add_overflow(all, total_of(bytes), &all)) all = std::numeric_limits<int64_t>::max();
    }
    forms.add_row({form.name, format_bytes(total_of(form.ranks.front())), format_bytes(total_of(form.ranks.back())),
                   format_bytes(all)});
  }
  text += forms.str();
  if (!planned.most.empty()) {
    text += std::string("\nmemory.limit  room for ") + (planned.is_most_exact ? "" : "about ") +
            format_count(result["largest_classes"]) + " classes:";
    text += " " + job::counts_text(planned.most) + "\n";
  }
  if (!planned.is_limited) return text;
  return text + (planned.most.empty() ? "\n" : "") + verdict_text(planned) + "\n";
}

void draw(const Arguments& arguments, const Planned& planned) {
  const auto path = arguments.flag("--figure");
  if (!path) return;
  std::vector<report::MemoryBars> bars;
  for (const auto& form : planned.forms) bars.push_back({.form = form.name, .ranks = form.ranks, .predicted = {}});
  storage::write_named_file("--figure file", *path, report::memory_figure_svg(bars));
}

/// Of a job that needs a search: the plans; `job` becomes the chosen one.
std::optional<job::SharedPlans> search(const Arguments& arguments, job::Job& job) {
  if (!needs_search(job)) return std::nullopt;
  at::set_num_threads(job::threads_of(job.parallel));
  const auto limit = limit_of(job);
  job::PlanEstimate estimates(shape_of(job));
  auto plans = search_plans(job, estimates, {.limit = limit});
  if (const auto path = arguments.flag("--figure")) {
    storage::write_named_file("--figure file", *path, plans_figure(plans));
  }
  if (plans.fitting.empty()) refuse_limit(job, plans, *limit);
  job = with_plan(job, plans.fitting.front().words);
  return plans;
}

}  // namespace

int run_plan(const Arguments& arguments) {
  memory::install_meter();
  if (!job::prints_for_the_job()) return 0;  // one process of a job prints
  auto job = job::read_job(read_settings(arguments));
  check_training(job);
  const auto plans = search(arguments, job);
  for (const auto& line : job::idle_settings(job)) log::warn(line);
  if (job.parallel.pipeline > 1) job.pipeline.cut = cut_of(job, shape_of(job));  // found once
  const auto planned = plan_of(job);
  const auto schedule = plan_schedule(job, job.pipeline.cut);
  auto result = result_of(job, planned);
  result["schedule"] = schedule.result;
  if (plans) result.update(plans_json(*plans));
  write_result(arguments,
               (plans ? plans_text(*plans) + "\n" : "") + text_of(planned, result) +
                   (schedule.text.empty() ? "" : "\n" + schedule.text),
               result);
  if (!plans) draw(arguments, planned);
  return 0;
}

}  // namespace tandem::cli
