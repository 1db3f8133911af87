#include "tandem/cli/bench/step.h"

#include <charconv>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/cli/bench/timed_step.h"
#include "tandem/comm/agree.h"
#include "tandem/job/rank_memory.h"
#include "tandem/job/ranks.h"
#include "tandem/memory/meter.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

constexpr int kWarmUp = 3;  // gradient buckets are laid out anew in the second step

void answer(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

constexpr int64_t kCosts = -1;

/// The number that the next line of stdin asks for; 0 at its end; kCosts.
int64_t asked() {
  std::string line;
  if (!std::getline(std::cin, line)) return 0;
  if (line == "costs") return kCosts;
  int64_t steps = 0;
  const auto [end, fault] = std::from_chars(line.data(), line.data() + line.size(), steps);
  if (fault != std::errc() || end != line.data() + line.size() || steps < 1) {
    throw UsageError("the input is " + quote(line) + ", wanted a number of steps");
  }
  return steps;
}

int64_t sent_bytes(const std::map<std::string, comm::OperationCount>& counts) {
  int64_t bytes = 0;
  for (const auto& [operation, count] : counts) bytes += count.bytes;
  return bytes;
}

nlohmann::json measure(TimedStep& step, comm::ProcessGroup& group) {
  for (int i = 0; i < kWarmUp; ++i) step.run();
  step.settle();
  group.meter().reset();
  memory::PeakWatch watch(group.rank());
  watch.begin();
  step.run();
  watch.end();
  step.settle();
  const auto sent = sent_bytes(group.meter().counts());
  const auto wire = comm::reduce_number(sent, comm::Reduce::sum, group);
  const auto peak = comm::reduce_number(watch.account().peak_bytes(), comm::Reduce::max, group);
  return {{"peak_bytes", peak}, {"wire_bytes", wire}, {"ranks", group.size()}};
}

/// Of all ranks, in the order of the model's stages.
nlohmann::json costs(TimedStep& step, const job::Job& job, comm::ProcessGroup& group) {
  const auto own = step.measure();
  const auto ranks = job::stage_ranks(job);
  if (ranks.size() == 1) throw UsageError("the input is costs, wanted a job with stages");
  const auto sizes = job.parallel.mesh(group.size());
  auto stages = nlohmann::json::array();
  size_t next = 0;
  for (const int coordinate : ranks) {
    const bool is_here = sizes.coordinate(parallel::Axis::pipeline, group.rank()) == coordinate;
    const auto cost = is_here ? own.stages[next++] : pipeline::StageCost{0, 0, 0};
    const auto of_slowest = [&](double seconds) { return comm::reduce_number(seconds, comm::Reduce::max, group); };
    const auto forward = of_slowest(cost.forward), input_gradient = of_slowest(cost.input_gradient);
    stages.push_back({{"forward", forward},
                      {"input_gradient", input_gradient},
                      {"weight_gradient", of_slowest(cost.weight_gradient)}});
  }
  return {{"stages", stages}, {"update", comm::reduce_number(own.update, comm::Reduce::max, group)}};
}

/// `sends`: false: each rank only imagines the others.
void serve(const job::Job& job, bool sends, comm::ProcessGroup& group) {
  const auto plan = job::plan_rank(job, shape_of(job), {.batches = 1}, group);
  const auto imagined = comm::make_rehearsal_group(group.rank(), group.size(), group.transport());
  TimedStep step(job, plan.task, sends ? group : *imagined);
  const auto facts = measure(step, group);
  const bool leads = group.rank() == 0;
  if (leads) answer(facts.dump());
  for (;;) {
    const auto steps = comm::broadcast_number(leads ? asked() : 0, 0, group);
    if (steps == 0) return;
    if (steps == kCosts) {
      const auto all = costs(step, job, group);
      if (leads) answer(all.dump());
      continue;
    }
    std::string seconds;
    for (int64_t i = 0; i < steps; ++i) seconds += (i > 0 ? " " : "") + std::to_string(step.run());
    step.settle();  // nothing goes on in the other side's turn
    if (leads) answer(seconds);
  }
}

}  // namespace

int run_step(const Arguments& arguments) {
  memory::install_meter();
  settings::Settings settings(job::schema());
  std::vector<std::string> words = {arguments.words.begin() + 1, arguments.words.end()};
  const bool is_alone = std::erase(words, "alone") > 0;
  settings.apply(words);
  const auto job = job::read_job(std::move(settings));
  check_training(job);
  check_has_plan(job);
  job::on_ranks(job, [&](comm::ProcessGroup& group) { serve(job, !is_alone, group); });
  return 0;
}

}  // namespace tandem::cli
