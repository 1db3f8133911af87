#include "tandem/job/sections/pipeline.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/naming.h"
#include "tandem/job/sections/section.h"
#include "tandem/pipeline/proof.h"
#include "tandem/settings/value.h"
#include "tandem/storage/file_io.h"

// Settings of pipelines.
namespace tandem::job {
namespace {

constexpr std::string_view kDefaultSchedule = "1f1b";
constexpr std::string_view kLeastBytes = "v-min";
constexpr uint64_t kMostBytes = 64 << 20;  // of a program

bool is_schedule(std::string_view name) {
  const auto all = pipeline::schedules();
  return std::ranges::find(all, name, &pipeline::Schedule::name) != all.end();
}

/// Of training.
std::vector<pipeline::Schedule> training_schedules() {
  std::vector<pipeline::Schedule> some;
  for (const auto& schedule : pipeline::schedules()) {
    if (schedule.has_backward) some.push_back(schedule);
  }
  return some;
}

/// A file is told from a misspelt name by its ending or its folder.
std::optional<std::string> read_program_path(std::string_view text) {
  if (text.find_first_of("./") == text.npos) return std::nullopt;
  return std::string(text);
}

void read_pipeline(settings::Settings& settings, Job& job) {
  const auto& name = settings.get_string("pipeline.schedule");
  auto& pipeline = job.pipeline;
  pipeline.chunks = static_cast<int>(settings.get_int("pipeline.chunks"));
  pipeline.held = static_cast<int>(settings.get_int("pipeline.held"));
  pipeline.cut = settings.get_list("pipeline.cut");
  pipeline.measures_cut = pipeline.cut == std::vector<std::string>{"measured"};
  if (pipeline.measures_cut) pipeline.cut.clear();
  const auto costs = settings.get_numbers("pipeline.costs");
  if (costs.size() != pipeline.costs.size()) {
    throw SettingsError("pipeline.costs has " + std::to_string(costs.size()) + " numbers, wanted 3",
                        "give those of forward, input gradients and weight gradients: 1,1,1");
  }
  std::ranges::copy(costs, pipeline.costs.begin());
  pipeline.head_cost = settings.get_float("pipeline.head_cost");
  pipeline.is_searched = name == kFittingSchedule;
  if (pipeline.is_searched || is_schedule(name)) {
    pipeline.schedule = &pipeline::schedule_of(pipeline.is_searched ? kLeastBytes : name);
    return;
  }
  pipeline.file = name;
  if (job.parallel.pipeline > 1) pipeline.text = storage::read_text_file(name, kMostBytes);
}

bool is_alone(const Job& job) { return job.parallel.pipeline == 1; }

void check_held(const Job& job) {
  const auto* schedule = job.pipeline.schedule;
  const int held = job.pipeline.held, least = pipeline::least_held(job.parallel.pipeline);
  if (schedule == nullptr || !schedule->takes_held || held == 0 || held >= least) return;
  throw SettingsError("pipeline.held is " + std::to_string(held) + " with " + std::to_string(job.parallel.pipeline) +
                          " ranks along pipeline, wanted at least " + std::to_string(least),
                      "pipeline.held=0 is the least");
}

void check_pipeline(const Job& job) {
  if (is_alone(job)) return;
  check_held(job);
  if (divides_head(job) && job.parallel.device.is_cuda()) {
    throw SettingsError("head.over is " + settings::format_value(job.settings.get("head.over")) +
                            " with device=cuda, where messages between two ranks keep one order, wanted last",
                        "use head.over=last");
  }
  program_of(job, static_cast<int>(job.training.accumulate));
}

}  // namespace

bool divides_head(const Job& job) {
  return job.parallel.pipeline > 1 && !job.head.form->is_whole && job.head.over.has(parallel::Axis::pipeline);
}

pipeline::Program program_of(const Job& job, int micro_batches) {
  if (is_alone(job)) return make_program(pipeline::schedule_of(kDefaultSchedule), {.micro_batches = micro_batches});
  const auto& pipeline = job.pipeline;
  const int ranks = job.parallel.pipeline;
  if (pipeline.schedule != nullptr) {
    pipeline::ScheduleSize size = {
        .ranks = ranks, .micro_batches = micro_batches, .chunks = pipeline.chunks, .held = pipeline.held};
    if (divides_head(job)) size.head = pipeline.head_cost > 0 ? pipeline.head_cost : 1;
    try {
      return make_program(*pipeline.schedule, size);
    } catch (SettingsError& error) {
      throw SettingsError("train.accumulate is " + std::to_string(micro_batches) +
                              " with pipeline.schedule=" + std::string(pipeline.schedule->name) + " and " +
                              std::to_string(ranks) + " ranks along pipeline, wanted a multiple of them",
                          "use another schedule, or as many micro-batches");
    }
  }
  auto program = pipeline::parse_program(pipeline.text, pipeline.file);
  if (!program.has_backward()) {
    throw SettingsError("pipeline.schedule " + quote(pipeline.file) + " has no backward, wanted a step of training");
  }
  if (program.num_ranks() != ranks) {
    throw SettingsError("pipeline.schedule " + quote(pipeline.file) + " is for " + std::to_string(program.num_ranks()) +
                        " ranks, wanted " + std::to_string(ranks) + ", those along pipeline");
  }
  if (program.micro_batches != micro_batches) {
    throw SettingsError("pipeline.schedule " + quote(pipeline.file) + " is for " +
                            std::to_string(program.micro_batches) + " micro-batches, wanted " +
                            std::to_string(micro_batches),
                        "set train.accumulate=" + std::to_string(program.micro_batches));
  }
  if (program.divides_head() != divides_head(job)) {
    throw SettingsError("pipeline.schedule " + quote(pipeline.file) + " has " +
                            (program.divides_head() ? "scores of a divided classifier" : "no scores") +
                            " with head.over=" + settings::format_value(job.settings.get("head.over")),
                        program.divides_head() ? "use head.over=all, or leave S and T out"
                                               : "add S and T of each rank and micro-batch, or use head.over=last");
  }
  prove(program);
  return program;
}

std::vector<int> stage_ranks(const Job& job) {
  if (is_alone(job)) return {0};
  if (job.pipeline.schedule != nullptr) {
    return job.pipeline.schedule->rank_of({.ranks = job.parallel.pipeline, .chunks = job.pipeline.chunks});
  }
  return program_of(job, static_cast<int>(job.training.accumulate)).rank_of;
}

const Section& pipeline_section() {
  static const auto doc = docs_of(training_schedules(), "in which order the ranks along pipeline do their work") +
                          "; fit: the fastest of all that fits memory.limit";
  static const auto names = [] {
    auto all = names_of(training_schedules());
    all.push_back(kFittingSchedule);
    return all;
  }();
  static const Section section = {
      .rows = {{.key = "pipeline.schedule",
                .default_value = text(kDefaultSchedule),
                .doc = doc,
                .choices = names,
                .other = {"FILE", read_program_path}},
               {"pipeline.chunks", int64_t{2}, "pipeline.schedule=interleaved: stages of each rank", {1, 64}},
               {"pipeline.held",
                int64_t{0},
                "pipeline.schedule=v-held: graphs of its two stages that each rank may hold at once, 4 for two "
                "micro-batches, and as many gradients of weights; 0: as few as v-min",
                {0, 1e6}},
               {.key = "pipeline.cut",
                .default_value = std::vector<std::string>(),
                .doc = "blocks with which the stages but the first begin, such as layer2.0,layer4.0; layer2.0/1: with "
                       "the second part of a block; empty: where stages work about as long; measured: where they take "
                       "as long on rank 0's machine"},
               {.key = "pipeline.costs",
                .default_value = std::vector<double>{1, 1, 1},
                .doc = "plan: three numbers, what a rank takes for forward, input gradients and weight gradients of a "
                       "micro-batch",
                .range = {0, 1e9}},
               {"pipeline.head_cost",
                0.0,
                "plan: what one rank would take for each of the classifier's four products of a micro-batch, in the "
                "units of pipeline.costs; scores are ordered by it, too",
                {0, 1e9}}},
      .read = read_pipeline,
      .check = check_pipeline,
      .idle = {{{"pipeline.schedule", "pipeline.cut", "pipeline.costs", "pipeline.head_cost"},
                is_alone,
                "with one rank along pipeline"},
               {{"pipeline.chunks"},
                [](const Job& job) {
                  return is_alone(job) || job.pipeline.schedule == nullptr || job.pipeline.schedule->chunks > 0;
                },
                "except with pipeline.schedule=interleaved"},
               {{"pipeline.held"},
                [](const Job& job) {
                  return is_alone(job) || job.pipeline.schedule == nullptr || !job.pipeline.schedule->takes_held;
                },
                "except with pipeline.schedule=v-held"}}};
  return section;
}

}  // namespace tandem::job
