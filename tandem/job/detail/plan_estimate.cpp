#include "tandem/job/detail/plan_estimate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>

#include "tandem/base/seconds.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/joint_work.h"
#include "tandem/job/detail/measure_links.h"
#include "tandem/job/detail/stage_plan.h"
#include "tandem/job/parts.h"
#include "tandem/memory/meter.h"
#include "tandem/pipeline/proof.h"

namespace tandem::job {
namespace {

using parallel::Axes;
using parallel::Axis;
using parallel::Sharded;

constexpr double kPassesOfSum = 3;  // reads both, writes one

/// Numbers of state that the optimizer keeps for a weight.
int states_of(const Job& job) {
  if (job.optimizer.kind != train::OptimizerKind::sgd) return 2;
  return job.settings.get_float("train.momentum") > 0 ? 1 : 0;
}

int micro_batches(const Job& job) { return static_cast<int>(job.training.accumulate); }

/// Seconds of each of the classifier's four products for a micro-batch, on one rank of a pipeline's.
double product_seconds(const Job& job, int64_t classes, double slower) {
  const auto sizes = job.parallel.mesh(job.parallel.ranks);
  const auto& head = job.head;
  const bool is_whole = head.form->is_whole;
  const int parts = is_whole ? 1 : sizes.size(head.over - Axes{Axis::pipeline});
  const double rows = images_of(job) * (is_whole ? 1 : sizes.size(parallel::kBatchAxes));
  return seconds_of_classifier(job, static_cast<double>(classes) / parts, rows) * slower / 4;
}

/// Bytes of the head's classes on a rank that has some.
int64_t head_bytes(const Job& job, int64_t classes) {
  const auto sizes = job.parallel.mesh(job.parallel.ranks);
  const int parts = job.head.form->is_whole ? 1 : sizes.size(job.head.over);
  return (classes + parts - 1) / parts * job.model.features *
         static_cast<int64_t>(c10::elementSize(job.training.precision.type));
}

/// Each row divides what the rows before it divide, too.
bool divides(const Job& job, Sharded what) {
  const auto& divided = job.parallel.strategy->divides;
  return divided && *divided >= what;
}

/// Of a micro-batch.
double bytes_taken(const Job& job, const PartCost& part) {
  double numbers = 0;
  for (const auto& value : part.takes) numbers += static_cast<double>(value.numbers());
  return numbers * static_cast<double>(c10::elementSize(job.training.precision.type)) * images_of(job);
}

/// Bytes a second of adding one gradient to another.
double memory_rate() {
  constexpr int64_t kNumbers = 4 << 20;
  constexpr int kRuns = 5;
  const memory::ProbeScope aside;
  auto sum = at::zeros({kNumbers});
  const auto more = at::zeros({kNumbers});
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    sum.add_(more);
    best = std::min(best, seconds_since(start));
  }
  return static_cast<double>(sum.nbytes()) * kPassesOfSum / best;
}

bool recomputes_all(const Job& job) { return job.memory.recompute->name == "all"; }

}  // namespace

PlanEstimate::Key PlanEstimate::key_of(const Job& job) {
  return {job.parallel.mesh(job.parallel.ranks).tensor, std::max<int64_t>(1, std::llround(images_of(job)))};
}

std::vector<PartCost> PlanEstimate::find_costs(const Job& job, CutBy by) const {
  const memory::ProbeScope aside;
  const auto group = comm::make_rehearsal_group(0, job.parallel.ranks, job.parallel.transport);
  return part_costs(job, shape_.image, *make_mesh(job, *group), by, /*rehearses=*/true);
}

const std::vector<PartCost>& PlanEstimate::costs_of(const Job& job) {
  const auto key = key_of(job);
  if (const auto known = costs_.find(key); known != costs_.end()) return known->second;
  if (is_measured_) throw SettingsError("its parts are not measured");
  return costs_[key] = find_costs(job, CutBy::work);
}

/// With the seconds of forward and backward of each part, medians of whole passes: no part finds its weights in a cache
/// because it ran just before.
std::pair<std::vector<PartCost>, Tensor> PlanEstimate::measured_costs(const Job& job) const {
  constexpr int kPasses = 4;  // of which the first makes ready
  std::vector<PartCost> costs;
  std::vector<Tensor> passes;
  try {
    for (int i = 0; i < kPasses; ++i) {
      costs = find_costs(job, CutBy::time);
      std::vector<double> seconds;
      for (const auto& cost : costs) seconds.insert(seconds.end(), {cost.forward, cost.backward});
      if (i > 0) passes.push_back(at::tensor(seconds, at::kDouble));
    }
  } catch (const c10::Error& error) {  // such as of a rank with one image, which has no statistics
    throw SettingsError(error.what_without_backtrace());
  }
  return {std::move(costs), std::get<0>(at::stack(passes).median(0))};
}

void PlanEstimate::measure(const Job& job, comm::ProcessGroup& group) {
  if (!is_measured_) {
    links_ = measure_links(group);
    memory_rate_ = comm::reduce_number(memory_rate(), comm::Reduce::min, group);
  }
  is_measured_ = true;
  if (costs_.contains(key_of(job))) return;
  comm::barrier(group);
  std::vector<PartCost> costs;
  Tensor seconds;
  comm::jointly(group, [&] { std::tie(costs, seconds) = measured_costs(job); });
  const auto slowest = comm::all_reduce(seconds, group, comm::Reduce::max);
  const auto* of_part = slowest.const_data_ptr<double>();
  for (auto& cost : costs) {
    cost.forward = *of_part++;
    cost.backward = *of_part++;
    cost.seconds = cost.forward + cost.backward;
  }
  costs_[key_of(job)] = std::move(costs);
}

/// Ranks along an axis are on several hosts, or on one. Groups that lie side by side share what joins the hosts.
Link PlanEstimate::link_along(const Job& job, Axes axes) const {
  const auto sizes = job.parallel.mesh(job.parallel.ranks);
  const auto host_of = [&](int rank) { return rank / links_.ranks_of_host; };
  for (int rank = 0; rank < job.parallel.ranks; ++rank) {
    const auto along = sizes.ranks_along(axes, rank);
    if (host_of(along.front()) == host_of(along.back())) continue;
    const auto beside = std::ranges::count(along, host_of(rank), host_of);
    auto link = links_.between;
    link.bytes_per_second *= static_cast<double>(beside) / links_.ranks_of_host;
    return link;
  }
  return links_.inside;
}

/// Of the whole model, stage by stage.
std::vector<PlanEstimate::Stage> PlanEstimate::stages_of(const Job& job) {
  const auto& parts = costs_of(job);
  const int count = static_cast<int>(stage_ranks(job).size());
  if (count > std::ssize(parts)) throw SettingsError("the model has fewer parts than stages");
  const double head = divides_head(job) ? 0 : 4 * product_seconds(job, shape_.classes, slower_than_nominal(parts));
  const auto cuts = count == 1 ? std::vector<int64_t>{0, std::ssize(parts)} : cuts_of(job, parts, head, count);
  const auto link = link_along(job, {Axis::pipeline});
  std::vector<Stage> stages;
  for (int i = 0; i < count; ++i) {
    const std::span own(parts.begin() + cuts[i], parts.begin() + cuts[i + 1]);
    stages.push_back(stage_of(job, own));
    if (i == 0) continue;
    const double seconds = link.seconds(bytes_taken(job, own.front()));
    stages[static_cast<size_t>(i) - 1].cost.output_message = seconds;
    stages.back().cost.gradient_message = seconds;
  }
  return stages;
}

PlanEstimate::Stage PlanEstimate::stage_of(const Job& job, std::span<const PartCost> parts) const {
  const int tensor = job.parallel.mesh(job.parallel.ranks).tensor;
  const auto link = link_along(job, {Axis::tensor});
  Stage stage;
  stage.first = parts.front().name;
  double backward = 0;
  int64_t of_block = 0, number = -1;
  for (const auto& part : parts) {
    stage.cost.forward += part.forward;
    backward += part.backward;
    stage.cost.graph_bytes += part.held_bytes;
    stage.workspace = std::max(stage.workspace, part.block_bytes);
    stage.weights += part.weight_bytes;
    stage.blocks += part.block == number ? 0 : 1;
    of_block = (part.block == number ? of_block : 0) + part.weight_bytes;
    number = part.block;
    stage.largest_block = std::max(stage.largest_block, of_block);
    if (tensor == 1 || part.part > 0) continue;
    // A block's value is summed once in each direction.
    const double sum = link.seconds(2 * bytes_taken(job, part) * (tensor - 1) / tensor, 2);
    stage.cost.forward += sum;
    backward += sum;
  }
  if (job.memory.recomputes()) {
    // The stage, or each of its segments, holds what it takes, and runs again before its backward.
    const double segments = recomputes_all(job) ? 1 : std::sqrt(static_cast<double>(parts.size()));
    backward += stage.cost.forward;
    stage.workspace += std::llround(static_cast<double>(stage.cost.graph_bytes) / segments);
    stage.cost.graph_bytes = std::llround(bytes_taken(job, parts.front()) * segments);
  }
  stage.cost.input_gradient = stage.cost.weight_gradient = backward / 2;
  // Gradients of each micro-batch but the first are added to those before.
  const int ranks =
      divides(job, Sharded::gradients) ? job.parallel.mesh(job.parallel.ranks).size(parallel::kBatchAxes) : 1;
  const double added = 1 - 1.0 / micro_batches(job);
  stage.cost.weight_gradient += added * kPassesOfSum * static_cast<double>(stage.weights) / ranks / memory_rate_;
  stage.cost.weight_work_bytes = stage.cost.graph_bytes;
  return stage;
}

/// Of a rank's gradients and weights along the axes of a batch, beyond what its backward hides.
double PlanEstimate::sync_seconds(const Job& job, const std::vector<Stage>& own) const {
  const auto sizes = job.parallel.mesh(job.parallel.ranks);
  const int ranks = sizes.size(parallel::kBatchAxes);
  if (ranks == 1) return 0;
  double weights = 0, backward = 0, blocks = 0;
  for (const auto& stage : own) {
    weights += static_cast<double>(stage.weights);
    blocks += stage.blocks;
    backward += stage.cost.backward();
  }
  const auto link = link_along(job, parallel::kBatchAxes);
  const double micro = micro_batches(job), part = weights * (ranks - 1) / ranks;
  const double once = link.seconds(part, ranks - 1);
  // Each block is gathered into new memory before it runs, in both directions, and what it gives is divided.
  const double of_blocks = link.seconds(3 * part, 3 * blocks * (ranks - 1)) + 2 * 2 * weights / memory_rate_;
  const double all = divides(job, Sharded::parameters)  ? micro * of_blocks
                     : divides(job, Sharded::gradients) ? (micro + 1) * once
                                                        : 2 * once;
  return std::max(once, all - link.hidden * std::min(all, backward));
}

double PlanEstimate::update_seconds(const Job& job, int64_t updated) const {
  return static_cast<double>(updated) * (3 + 2 * states_of(job)) / memory_rate_;
}

/// What a rank holds between steps and at the most, but for what its graphs hold, and what it does after backward.
PlanEstimate::RankEstimate PlanEstimate::rank_of(const Job& job, const std::vector<Stage>& own, bool has_head) const {
  const int states = states_of(job), ranks = job.parallel.mesh(job.parallel.ranks).size(parallel::kBatchAxes);
  const bool divides_gradients = divides(job, Sharded::gradients);
  const auto divided = [&](int64_t bytes, bool is_divided) { return is_divided ? bytes / ranks : bytes; };
  int64_t weights = 0, largest = 0, workspace = 0;
  for (const auto& stage : own) {
    weights += stage.weights;
    largest = std::max(largest, stage.largest_block);
    workspace = std::max(workspace, stage.workspace);
  }
  const int64_t head = has_head ? head_bytes(job, shape_.classes) : 0;
  const int64_t updated = divided(weights, divides(job, Sharded::optimizer)) + head;
  RankEstimate estimate;
  estimate.bytes = divided(weights, divides(job, Sharded::parameters)) + divided(weights, divides_gradients) +
                   2 * head + states * updated + (divides_gradients ? 2 * largest : 0) + workspace;
  estimate.seconds = sync_seconds(job, own) + update_seconds(job, updated);
  return estimate;
}

StepEstimate PlanEstimate::of(const Job& job) {
  const auto stages = stages_of(job);
  const int pipeline = job.parallel.mesh(job.parallel.ranks).pipeline;
  const double product = product_seconds(job, shape_.classes, slower_than_nominal(costs_of(job)));
  std::vector<pipeline::StageCost> costs;
  for (const auto& stage : stages) costs.push_back(stage.cost);
  if (!divides_head(job)) {
    costs.back().forward += product;
    costs.back().input_gradient += 3 * product;
  }
  const auto program = program_of(job, micro_batches(job));
  const auto simulation = simulate(program, costs, pipeline::HeadCost::even(product, pipeline));
  StepEstimate estimate;
  double after = 0;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    std::vector<Stage> own;
    for (const int stage : program.stages_of(rank)) own.push_back(stages[static_cast<size_t>(stage)]);
    const auto one = rank_of(job, own, divides_head(job) || rank == program.home());
    const auto bytes = one.bytes + simulation.ranks[static_cast<size_t>(rank)].peak_bytes;
    if (bytes > estimate.peak_bytes) estimate.peak_bytes = bytes, estimate.worst = rank;
    after = std::max(after, one.seconds);
  }
  for (size_t i = 1; i < stages.size(); ++i) estimate.cut.push_back(stages[i].first);
  estimate.seconds = simulation.makespan + after;
  estimate.stages = std::move(costs);
  estimate.after = after;
  return estimate;
}

double PlanEstimate::lower_bound(const Job& job) {
  double seconds = 0;
  for (const auto& part : costs_of(job)) seconds += part.forward + part.backward;
  seconds += 4 * product_seconds(job, shape_.classes, slower_than_nominal(costs_of(job)));
  const auto sizes = job.parallel.mesh(job.parallel.ranks);
  return seconds * micro_batches(job) * sizes.size(parallel::kBatchAxes) * sizes.tensor / job.parallel.ranks;
}

}  // namespace tandem::job
