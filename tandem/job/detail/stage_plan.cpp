#include "tandem/job/detail/stage_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/job/parts.h"
#include "tandem/job/sections/naming.h"
#include "tandem/memory/rehearsal.h"
#include "tandem/models/backbone.h"

namespace tandem::job {
namespace {

constexpr int64_t kImages = 2;  // of a forward in training

/// A part of a block, or a block that has none.
struct PartCost {
  std::string name;  // as pipeline.cut has it
  int64_t block = 0, part = 0;
  double seconds = 0, nominal_seconds = 0;  // for a micro-batch
  std::vector<ValueShape> takes;
};

/// Images of a rank in a micro-batch.
double images_of(const Job& job) {
  const auto sizes = job.parallel.mesh(job.parallel.ranks);
  const auto parts = sizes.size(parallel::kBatchAxes) * job.training.accumulate;
  return static_cast<double>(job.training.batch) / static_cast<double>(parts);
}

/// Of the rank's classes: the logits are worked out twice, and the gradients of features and weights once.
double seconds_of_classifier(const Job& job, int64_t classes, double images) {
  const auto sizes = job.parallel.mesh(job.parallel.ranks);
  const auto over = job.head.over - parallel::Axes{parallel::Axis::pipeline};
  const double own = static_cast<double>(classes) / (job.head.form->is_whole ? 1 : sizes.size(over));
  const double products = 2 * own * static_cast<double>(job.model.features) * images;
  const auto type = static_cast<double>(c10::elementSize(job.training.precision.type));
  return memory::BlockWork{.operations = products * 4 / 3, .results = 0, .weights = products / 2 / images * type}
      .nominal_seconds();
}

/// What passes between two parts, and which of it requires a gradient.
struct TrackedFlow {
  memory::Flow values;
  std::vector<bool> require;

  bool requires_grad() const { return std::ranges::find(require, true) != require.end(); }

  std::vector<ValueShape> shapes() const {
    std::vector<ValueShape> shapes;
    for (size_t i = 0; i < values.size(); ++i) {
      shapes.push_back({values[i].sizes().slice(1).vec(), values[i].suggest_memory_format(), require[i]});
    }
    return shapes;
  }

  /// Without what made them.
  memory::Flow leaves() const {
    memory::Flow leaves;
    for (size_t i = 0; i < values.size(); ++i) leaves.push_back(values[i].detach().set_requires_grad(require[i]));
    return leaves;
  }

  /// Runs the part. A shortcut that it hands on is what it was.
  memory::BlockWork pass(const memory::Block& part) {
    const auto before = *this;
    const auto work = memory::work_of({{part}}, values)[0];
    bool has_gradient = before.requires_grad();
    for (const auto& parameter : memory::parameters_of(part)) has_gradient |= parameter.requires_grad();
    require.clear();
    for (const auto& value : values) {
      const auto taken = std::ranges::find_if(before.values, [&](const Tensor& x) { return x.is_same(value); });
      require.push_back(taken == before.values.end() ? has_gradient : before.require[taken - before.values.begin()]);
    }
    return work;
  }
};

/// Forward and backward: the best of some runs, of which the first makes ready.
double measured_seconds(const memory::Block& part, const memory::Flow& input) {
  constexpr int kRuns = 4;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    const auto cost = memory::measure({{part}}, input)[0];
    if (i > 0) best = std::min(best, cost.forward + cost.backward);
  }
  return best;
}

/// Of each part of each block of the model.
std::vector<PartCost> costs_of(const Job& job, const std::array<int64_t, 3>& shape, parallel::Mesh& mesh, CutBy by) {
  const memory::ProbeScope aside;
  const auto& [channels, height, width] = shape;
  const auto options = at::TensorOptions(job.training.precision.type).device(job.parallel.device);
  const int64_t images = by == CutBy::time ? std::max<int64_t>(1, std::llround(images_of(job))) : kImages;
  TrackedFlow flow = {{at::zeros({images, channels, height, width}, options)}, {false}};
  std::vector<PartCost> costs;
  std::vector<std::string> names;  // of all parameters
  int64_t count = 1;
  for (int64_t i = 0; i < count; ++i) {
    const auto backbone = make_backbone(job, shape, &mesh, {{i, i}});
    count = backbone->num_blocks();
    for (const auto& name : backbone->named_parameters().keys()) names.push_back(name);
    const auto parts = memory::in_parts(backbone->chain()).blocks;
    for (int64_t part = 0; part < std::ssize(parts); ++part) {
      const auto& own = parts[part];
      costs.push_back({own.name + (part > 0 ? "/" + std::to_string(part) : ""), i, part, 0, 0, flow.shapes()});
      if (by == CutBy::time) costs.back().seconds = measured_seconds(own, flow.leaves());
      const auto work = flow.pass(own);
      costs.back().nominal_seconds = work.times(images_of(job) / static_cast<double>(images)).nominal_seconds();
      if (by == CutBy::work) costs.back().seconds = costs.back().nominal_seconds;
    }
  }
  naming_settings({"model"}, [&] { models::check_frozen(job.model.freeze, names); });
  return costs;
}

int64_t num_blocks(const std::vector<PartCost>& costs) { return costs.back().block + 1; }

/// How the block of a name such as "layer2.0/9" is cut inside.
std::string parts_in_words(const std::string& name, const std::vector<PartCost>& costs) {
  const auto slash = name.rfind('/');
  if (slash == name.npos) return "";
  const auto block = name.substr(0, slash);
  const auto first = std::ranges::find(costs, block, &PartCost::name);
  if (first == costs.end()) return "";
  const auto parts = std::ranges::count(costs, first->block, &PartCost::block);
  if (parts == 1) return block + " is not cut inside";
  return block + " is cut inside by " + block + "/1" +
         (parts > 2 ? " to " + block + "/" + std::to_string(parts - 1) : "");
}

/// The first parts of all stages, and the end.
std::vector<int64_t> cuts_by_name(const std::vector<std::string>& names, const std::vector<PartCost>& costs,
                                  int stages) {
  std::vector<int64_t> cuts = {0};
  for (const auto& name : names) {
    const auto found = std::ranges::find(costs, name, &PartCost::name);
    const auto at = found - costs.begin();
    if (found == costs.end() || at <= cuts.back()) {
      std::string blocks;
      for (const auto& cost : costs) {
        if (cost.part == 0) blocks += (blocks.empty() ? "" : ", ") + cost.name;
      }
      throw SettingsError("pipeline.cut names " + quote(name) +
                              (at > 0 && found != costs.end() ? " out of order" : "") +
                              ", wanted blocks of the model in their order, but not the first: " + blocks,
                          parts_in_words(name, costs));
    }
    cuts.push_back(at);
  }
  if (static_cast<int>(cuts.size()) != stages) {
    throw SettingsError("pipeline.cut names " + std::to_string(names.size()) + " blocks, wanted " +
                            std::to_string(stages - 1) + ", one for each stage but the first",
                        "pipeline.cut= cuts by work");
  }
  cuts.push_back(std::ssize(costs));
  return cuts;
}

/// So that the slowest stage is as fast as it can be. `last`: seconds of what follows the last block.
std::vector<int64_t> cuts_by_cost(const std::vector<PartCost>& costs, double last, int stages) {
  const auto count = std::ssize(costs);
  const bool are_few = stages > num_blocks(costs);
  std::vector<double> before(count + 1, 0);
  for (int64_t i = 0; i < count; ++i) before[i + 1] = before[i] + costs[i].seconds;
  before[count] += last;
  // slowest[s][i]: of the first i parts in s stages; from[s][i]: where the last of these begins.
  const std::vector<double> none(count + 1, std::numeric_limits<double>::infinity());
  std::vector<std::vector<double>> slowest(stages + 1, none);
  std::vector<std::vector<int64_t>> from(stages + 1, std::vector<int64_t>(count + 1, 0));
  slowest[0][0] = 0;
  for (int s = 1; s <= stages; ++s) {
    for (int64_t i = s; i <= count; ++i) {
      for (int64_t first = s - 1; first < i; ++first) {
        if (!are_few && costs[first].part > 0) continue;
        const double now = std::max(slowest[s - 1][first], before[i] - before[first]);
        if (now < slowest[s][i]) slowest[s][i] = now, from[s][i] = first;
      }
    }
  }
  std::vector<int64_t> cuts = {count};
  for (int s = stages; s > 0; --s) cuts.push_back(from[s][cuts.back()]);
  std::ranges::reverse(cuts);
  return cuts;
}

models::BlockRange range_of(const PartCost& first, const PartCost& last) {
  return {first.block, last.block, first.part, last.part};
}

/// How much longer the model takes than on a nominal core.
double slower_than_nominal(const std::vector<PartCost>& costs) {
  double seconds = 0, nominal = 0;
  for (const auto& cost : costs) seconds += cost.seconds, nominal += cost.nominal_seconds;
  return nominal > 0 ? seconds / nominal : 1;
}

std::string in_words(const std::vector<PartCost>& costs) {
  const auto blocks = std::to_string(num_blocks(costs)) + " blocks of model ";
  if (num_blocks(costs) == std::ssize(costs)) return blocks;
  return std::to_string(costs.size()) + " parts of the " + blocks;
}

}  // namespace

std::vector<models::BlockRange> StagePlan::blocks_of(int coordinate) const {
  std::vector<models::BlockRange> own;
  if (num_stages() == 1) return own;
  for (const int stage : stages_of(coordinate)) own.push_back(blocks[stage]);
  return own;
}

memory::Flow StagePlan::input_of(int stage, int64_t images, const at::TensorOptions& options) const {
  memory::Flow flow;
  for (const auto& [sizes, format, requires_grad] : inputs[stage]) {
    std::vector<int64_t> all = {images};
    all.insert(all.end(), sizes.begin(), sizes.end());
    flow.push_back(at::empty(all, options, format).requires_grad_(requires_grad));
  }
  return flow;
}

StagePlan plan_stages(const Job& job, const DataShape& shape, parallel::Mesh& mesh, CutBy by) {
  StagePlan plan{.rank_of = stage_ranks(job), .blocks = {}};
  const int stages = plan.num_stages();
  if (stages == 1) return plan;
  const auto costs = costs_of(job, shape.image, mesh, by);
  const double classifier = seconds_of_classifier(job, shape.classes, images_of(job)) * slower_than_nominal(costs);
  if (stages > std::ssize(costs)) {
    const bool has_several = stages > job.parallel.pipeline;
    const auto schedule =
        has_several ? " with pipeline.schedule=" + job.settings.get_string("pipeline.schedule") : std::string();
    throw SettingsError("mesh.pipeline is " + std::to_string(job.parallel.pipeline) + schedule + ", which makes " +
                            std::to_string(stages) + " stages, wanted at most the " + in_words(costs) + job.model.name,
                        std::string("use fewer ranks along pipeline, ") +
                            (has_several ? "a schedule with fewer stages a rank, " : "") + "or a larger model");
  }
  const auto cuts = job.pipeline.cut.empty() ? cuts_by_cost(costs, classifier, stages)
                                             : cuts_by_name(job.pipeline.cut, costs, stages);
  for (int stage = 0; stage < stages; ++stage) {
    const auto &first = costs[cuts[stage]], &last = costs[cuts[stage + 1] - 1];
    plan.blocks.push_back(range_of(first, last));
    plan.inputs.push_back(first.takes);
    if (stage > 0) plan.cut.push_back(first.name);
  }
  return plan;
}

}  // namespace tandem::job
