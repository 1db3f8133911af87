#include "tandem/cli/plan_schedule.h"

#include <algorithm>

#include "tandem/base/format.h"
#include "tandem/base/table.h"
#include "tandem/pipeline/proof.h"
#include "tandem/pipeline/simulation.h"

namespace tandem::cli {
namespace {

constexpr double kMostUnits = 400;  // of a clock table

std::string number_text(double number) { return format_number("%.4g", number); }

/// The shortest action, as the clock's unit; 0: they take no time.
double unit_of(const std::vector<pipeline::StageCost>& costs, double of_head) {
  double unit = of_head;
  for (const auto& cost : costs) {
    for (const double part : {cost.forward, cost.input_gradient, cost.weight_gradient}) {
      if (part > 0 && (unit == 0 || part < unit)) unit = part;
    }
  }
  return unit;
}

std::string joined(const std::vector<std::string>& cut) {
  std::string text = "the first block";
  for (const auto& name : cut) text += ", " + name;
  return text;
}

}  // namespace

PlannedSchedule plan_schedule(const job::Job& job, const std::vector<std::string>& cut) {
  if (job.parallel.pipeline == 1) return {};
  const auto program = job::program_of(job, static_cast<int>(job.training.accumulate));
  const auto held = prove(program);
  const auto& [forward, input, weight] = job.pipeline.costs;
  auto costs = even_costs(program, {.forward = forward, .input_gradient = input, .weight_gradient = weight});
  const auto product = job.pipeline.head_cost;
  if (!program.divides_head()) {  // the last stage has it all
    costs.back().forward += product;
    costs.back().input_gradient += 3 * product;
  }
  const auto head = pipeline::HeadCost::even(product, program.num_ranks());
  const auto simulation = simulate(program, costs, head);
  const auto name = job.settings.get_string("pipeline.schedule");
  PlannedSchedule planned;
  planned.result = {{"name", name},
                    {"micro_batches", program.micro_batches},
                    {"makespan", simulation.makespan},
                    {"bubble", simulation.bubble},
                    {"cut", cut},
                    {"ranks", nlohmann::json::array()}};
  Table table(
      {"along pipeline", "stages", "span", "graphs held", "weight gradients held", "both", "messages under way"});
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    const auto stages = static_cast<double>(program.stages_of(rank).size());
    const auto& most = held[rank];
    planned.result["ranks"].push_back({{"span", simulation.ranks[rank].span},
                                       {"held_graphs", most.graphs / stages},
                                       {"held_weight_work", most.weight_work / stages},
                                       {"held", most.both / stages},
                                       {"messages", most.messages}});
    table.add_row({std::to_string(rank), number_text(stages), number_text(simulation.ranks[rank].span),
                   number_text(most.graphs / stages), number_text(most.weight_work / stages),
                   number_text(most.both / stages), std::to_string(most.messages)});
  }
  planned.text = "schedule  " + name + ", " + std::to_string(program.micro_batches) + " micro-batches: makespan " +
                 number_text(simulation.makespan) + ", bubble " + format_number("%.1f", simulation.bubble * 100) +
                 " %\n" + "stages    begin with " + joined(cut) + "\n" + table.str();
  const double unit = unit_of(costs, program.divides_head() ? head.scores : 0);
  if (unit > 0 && simulation.makespan / unit <= kMostUnits) planned.text += clock_table(program, simulation, unit);
  return planned;
}

}  // namespace tandem::cli
