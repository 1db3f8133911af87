#include "tandem/cli/bench/plans.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/base/median.h"
#include "tandem/base/table.h"
#include "tandem/cli/bench/delayed_stages.h"
#include "tandem/cli/bench/own_side.h"
#include "tandem/cli/bench/rounds.h"
#include "tandem/cli/result.h"
#include "tandem/comm/world.h"
#include "tandem/job/auto_plan.h"
#include "tandem/memory/meter.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

using Words = std::vector<std::string>;

const Words kPlansModels = {"resnet18", "vit_tiny"};

bool sleeps(const PlansBench& bench) { return bench.mode == "delays"; }

Words job_words(const PlansBench& bench, const std::string& model, int64_t ranks) {
  Words words = {"model=" + model,
                 "model.patch=8",
                 "data=synthetic",
                 "data.size=" + std::to_string(bench.size),
                 "head.classes=" + std::to_string(bench.classes),
                 "train.batch=" + std::to_string(bench.batch),
                 "eval.batch=" + std::to_string(ranks),  // no test is the peak
                 "threads=1",
                 "ranks=" + std::to_string(ranks)};
  words.insert(words.end(), bench.settings.begin(), bench.settings.end());
  return words;
}

job::Job job_of(const Words& words) {
  settings::Settings settings(job::schema());
  settings.apply(words);
  return job::read_job(std::move(settings));
}

/// With more ranks than cores it is about the time of ranks that have one each.
job::PlanEstimate measured(const PlansBench& bench, const job::Job& job) {
  const int group_size = sleeps(bench) ? std::min(job.parallel.ranks, 2) : job.parallel.ranks;
  job::PlanEstimate estimates(shape_of(job));
  comm::run_ranks(group_size, [&](comm::ProcessGroup& group) {
    auto own = measure_plans(job, shape_of(job), group);
    if (group.rank() == 0) estimates = std::move(own);
  });
  return estimates;
}

Words with_words(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// A plan of the job, that takes steps on command.
class Side {
 public:
  virtual ~Side() = default;
  virtual void take(int64_t steps) = 0;
  virtual const std::vector<double>& rounds() const = 0;
  virtual std::optional<int64_t> bytes() const = 0;
};

class RealSide : public Side {
 public:
  RealSide(const Words& words, const job::SharedPlan& plan)
      : side_(plan.text(), step_command(with_words(words, plan.words))) {}

  void take(int64_t steps) override { side_.take(steps); }
  const std::vector<double>& rounds() const override { return side_.rounds(); }
  std::optional<int64_t> bytes() const override { return side_.facts().at("peak_bytes").get<int64_t>(); }

 private:
  OwnSide side_;
};

/// The ranks of one pipeline; those beside it do the same at the same time.
class SleepingSide : public Side {
 public:
  SleepingSide(const job::Job& job, const job::SharedPlan& plan, double slower)
      : program_(program_of(job, static_cast<int>(job.training.accumulate))),
        stages_(plan.stages),
        slower_(slower),
        after_(plan.after_seconds) {
    for (auto& stage : stages_) {
      for (double* seconds : {&stage.forward, &stage.input_gradient, &stage.weight_gradient}) *seconds *= slower;
    }
  }

  void take(int64_t steps) override {
    std::vector<double> seconds;
    for (int64_t i = 0; i < steps; ++i) seconds.push_back(run_delayed(program_, stages_) / slower_ + after_);
    rounds_.push_back(median(seconds));
  }
  const std::vector<double>& rounds() const override { return rounds_; }
  std::optional<int64_t> bytes() const override { return std::nullopt; }

 private:
  pipeline::Program program_;
  std::vector<pipeline::StageCost> stages_;
  double slower_, after_;
  std::vector<double> rounds_;
};

std::unique_ptr<Side> side_of(const PlansBench& bench, const Words& words, const job::SharedPlan& plan) {
  if (!sleeps(bench)) return std::make_unique<RealSide>(words, plan);
  return std::make_unique<SleepingSide>(with_plan(job_of(with_words(words, {"parallel=auto"})), plan.words), plan,
                                        bench.slower);
}

void time_plans(const PlansBench& bench, const Words& words, const job::SharedPlans& found, PlansCase& result) {
  std::vector<std::unique_ptr<Side>> sides;
  for (const auto& plan : found.fitting) sides.push_back(side_of(bench, words, plan));
  for (int64_t round = 0; round < bench.rounds; ++round) {
    for (const auto& side : sides) side->take(bench.steps);
  }
  double best = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < sides.size(); ++i) {
    const auto& plan = found.fitting[i];
    const double seconds = median(sides[i]->rounds());
    best = std::min(best, seconds);
    result.plans.push_back({.text = plan.text(),
                            .predicted_seconds = plan.seconds,
                            .seconds = seconds,
                            .predicted_bytes = plan.peak_bytes,
                            .bytes = sides[i]->bytes()});
  }
  auto& chosen = result.plans.front();
  if (!chosen.bytes) chosen.bytes = RealSide(words, found.fitting.front()).bytes();
  result.of_best = chosen.seconds / best;
}

void compare(const PlansBench& bench, const std::string& model, int64_t ranks, std::vector<PlansCase>& cases) {
  const auto words = job_words(bench, model, ranks);
  auto searched = with_words(words, {"parallel=auto"});
  if (sleeps(bench)) searched.emplace_back("head.over=last");  // no stage that sleeps has a part of a classifier
  const auto job = job_of(searched);
  log::info(model + ", " + std::to_string(ranks) + " ranks: measures");
  auto estimates = measured(bench, job);
  const auto all = search_plans(job, estimates, {});  // without a limit something fits
  const auto least = all.front.back().peak_bytes, most = all.front.front().peak_bytes;
  for (const double part : bench.limits) {
    const auto limit = least + std::llround(part * static_cast<double>(most - least));
    log::info("searches within " + format_bytes(limit));
    const auto found =
        search_plans(job, estimates, {.limit = limit, .wanted = static_cast<int>(bench.plans), .wants_front = false});
    if (found.fitting.empty()) throw SettingsError("no plan of " + model + " fits " + format_count(limit) + " bytes");
    log::info("takes steps of " + std::to_string(found.fitting.size()) + " plans");
    auto& one =
        cases.emplace_back(PlansCase{.model = model, .ranks = ranks, .limit = limit, .lower_bound = found.lower_bound});
    time_plans(bench, words, found, one);
  }
}

}  // namespace

std::vector<PlansCase> bench_plans(const PlansBench& bench) {
  std::vector<PlansCase> cases;
  for (const auto& model : bench.models) {
    for (const auto ranks : bench.ranks) compare(bench, model, ranks, cases);
  }
  return cases;
}

namespace {

const std::vector<settings::Setting>& plans_settings() {
  static const std::vector<settings::Setting> settings = {
      {.key = "models", .default_value = kPlansModels, .doc = "models that have plans, a case each"},
      {.key = "mode",
       .default_value = std::string("steps"),
       .doc = "steps: of the job, on so many threads; delays: of stages that sleep for what they would take",
       .choices = {"steps", "delays"}},
      {"ranks", std::vector<double>{2}, "ranks, a case each", {1, 64}},
      {"limits",
       std::vector<double>{1, 0.5, 0},
       "bytes that plans may take: 1: those of the fastest of all; 0: of the smallest of its front; a case each",
       {0, 1}},
      {"plans", int64_t{6}, "the first plans of each search", {1, 64}},
      {"batch", int64_t{32}, "images of a step", {1, 1e6}},
      {"size", int64_t{32}, "pixels a side of the images", {1, 4096}},
      {"classes", int64_t{100}, "classes of the classifier", {1, 1e9}},
      {"rounds", int64_t{5}, "rounds, in which the plans take their steps in turn", {1, 1000}},
      {"steps", int64_t{3}, "steps of each plan in a round, of which the median counts", {1, 1000}},
      {"slower",
       5.0,
       "times that delays are longer, so that little else counts; their times are told as if not",
       {1, 1e3}},
      {"settings", std::vector<std::string>(), "more settings of the job, such as head=arcface"},
  };
  return settings;
}

PlansBench read_plans_bench(const settings::Settings& settings) {
  PlansBench bench = {.models = settings.get_list("models"),
                      .mode = settings.get_string("mode"),
                      .ranks = {},
                      .limits = settings.get_numbers("limits"),
                      .plans = settings.get_int("plans"),
                      .batch = settings.get_int("batch"),
                      .size = settings.get_int("size"),
                      .classes = settings.get_int("classes"),
                      .rounds = settings.get_int("rounds"),
                      .steps = settings.get_int("steps"),
                      .slower = settings.get_float("slower"),
                      .settings = settings.get_list("settings")};
  for (const double ranks : settings.get_numbers("ranks")) bench.ranks.push_back(std::llround(ranks));
  return bench;
}

nlohmann::json json_of(const PlansCase& one) {
  auto plans = nlohmann::json::array();
  for (const auto& plan : one.plans) {
    plans.push_back({{"plan", plan.text},
                     {"predicted_seconds", plan.predicted_seconds},
                     {"seconds", plan.seconds},
                     {"predicted_peak_bytes", plan.predicted_bytes},
                     {"peak_bytes", plan.bytes ? nlohmann::json(*plan.bytes) : nlohmann::json()}});
  }
  return {{"model", one.model},     {"ranks", one.ranks}, {"limit", one.limit}, {"lower_bound", one.lower_bound},
          {"of_best", one.of_best}, {"gap", one.gap()},   {"plans", plans}};
}

}  // namespace

settings::Schema plans_schema() { return plans_settings(); }

int run_plans(const Arguments& arguments) {
  memory::install_meter();
  at::set_num_threads(1);
  settings::Settings settings{settings::Schema(plans_settings())};
  settings.apply({arguments.words.begin() + 1, arguments.words.end()});
  const auto bench = read_plans_bench(settings);
  Table table(
      {"model", "limit", "of the best", "of the bound", "ms", "predicted", "peak of a rank", "predicted", "plan"});
  auto list = nlohmann::json::array();
  for (const auto& one : bench_plans(bench)) {
    for (const auto& plan : one.plans) {
      const bool is_chosen = &plan == &one.plans.front();
      table.add_row({is_chosen ? one.model + " " + std::to_string(one.ranks) : "",
                     is_chosen ? format_bytes(one.limit) : "", is_chosen ? format_number("%.2f", one.of_best) : "",
                     is_chosen ? format_number("%.2f", one.gap() + 1) : "", in_milliseconds(plan.seconds),
                     in_milliseconds(plan.predicted_seconds), plan.bytes ? format_bytes(*plan.bytes) : "",
                     format_bytes(plan.predicted_bytes), plan.text});
    }
    list.push_back(json_of(one));
  }
  write_result(arguments, table.str(), {{"cases", list}});
  return 0;
}

}  // namespace tandem::cli
