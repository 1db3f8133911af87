#include "tandem/job/detail/stage_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/job/parts.h"
#include "tandem/memory/rehearsal.h"
#include "tandem/models/backbone.h"

namespace tandem::job {
namespace {

constexpr int64_t kImages = 2;  // of a forward in training

struct BlockCost {
  std::string name;
  double seconds = 0;  // of a nominal core, for a micro-batch
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

std::vector<ValueShape> shapes_of(const memory::Flow& flow, bool requires_grad) {
  std::vector<ValueShape> shapes;
  for (const auto& value : flow) {
    shapes.push_back({value.sizes().slice(1).vec(), value.suggest_memory_format(), requires_grad});
  }
  return shapes;
}

/// Of each block of the model.
std::vector<BlockCost> costs_of(const Job& job, const std::array<int64_t, 3>& shape, parallel::Mesh& mesh) {
  const memory::ProbeScope aside;
  const auto& [channels, height, width] = shape;
  const auto options = at::TensorOptions(job.training.precision.type).device(job.parallel.device);
  memory::Flow flow = {at::zeros({kImages, channels, height, width}, options)};
  std::vector<BlockCost> costs;
  bool requires_grad = false;
  int64_t count = 1;
  for (int64_t i = 0; i < count; ++i) {
    const auto backbone = make_backbone(job, shape, &mesh, {{i, i}});
    count = backbone->num_blocks();
    const auto& chain = backbone->chain();
    BlockCost cost{.name = chain.blocks.front().name, .takes = shapes_of(flow, requires_grad)};
    for (const auto& parameter : backbone->parameters()) requires_grad |= parameter.requires_grad();
    cost.seconds = memory::work_of(chain, flow)[0].times(images_of(job) / kImages).nominal_seconds();
    costs.push_back(std::move(cost));
  }
  return costs;
}

/// The first blocks of all stages, and the end.
std::vector<int64_t> cuts_by_name(const std::vector<std::string>& names, const std::vector<BlockCost>& costs,
                                  int stages) {
  std::vector<int64_t> cuts = {0};
  for (const auto& name : names) {
    const auto found = std::ranges::find(costs, name, &BlockCost::name);
    const auto at = found - costs.begin();
    if (found == costs.end() || at <= cuts.back()) {
      std::string blocks;
      for (const auto& cost : costs) blocks += (blocks.empty() ? "" : ", ") + cost.name;
      throw SettingsError("pipeline.cut names '" + name +
                          "', wanted blocks of the model in their order, but not the "
                          "first: " +
                          blocks);
    }
    cuts.push_back(at);
  }
  if (static_cast<int>(cuts.size()) != stages) {
    throw SettingsError("pipeline.cut names " + std::to_string(names.size()) + " blocks, wanted " +
                        std::to_string(stages - 1) + ", one for each stage but the first");
  }
  cuts.push_back(static_cast<int64_t>(costs.size()));
  return cuts;
}

/// So that the slowest stage is as fast as it can be. `last`: seconds of what follows the last block.
std::vector<int64_t> cuts_by_cost(const std::vector<BlockCost>& costs, double last, int stages) {
  const auto count = static_cast<int64_t>(costs.size());
  std::vector<double> before(count + 1, 0);
  for (int64_t i = 0; i < count; ++i) before[i + 1] = before[i] + costs[i].seconds;
  before[count] += last;
  // slowest[s][i]: of the first i blocks in s stages; from[s][i]: where the last of these begins.
  const std::vector<double> none(count + 1, std::numeric_limits<double>::infinity());
  std::vector<std::vector<double>> slowest(stages + 1, none);
  std::vector<std::vector<int64_t>> from(stages + 1, std::vector<int64_t>(count + 1, 0));
  slowest[0][0] = 0;
  for (int s = 1; s <= stages; ++s) {
    for (int64_t i = s; i <= count; ++i) {
      for (int64_t first = s - 1; first < i; ++first) {
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

StagePlan plan_stages(const Job& job, const DataShape& shape, parallel::Mesh& mesh) {
  StagePlan plan{.rank_of = stage_ranks(job), .blocks = {}};
  const int stages = plan.num_stages();
  if (stages == 1) return plan;
  const auto costs = costs_of(job, shape.image, mesh);
  const double classifier = seconds_of_classifier(job, shape.classes, images_of(job));
  if (stages > static_cast<int>(costs.size())) {
    throw SettingsError("mesh.pipeline is " + std::to_string(job.parallel.pipeline) + ", which makes " +
                            std::to_string(stages) + " stages, wanted at most the " + std::to_string(costs.size()) +
                            " blocks of model " + job.model.name,
                        "use fewer ranks along pipeline, or a larger model");
  }
  const auto cuts = job.pipeline.cut.empty() ? cuts_by_cost(costs, classifier, stages)
                                             : cuts_by_name(job.pipeline.cut, costs, stages);
  for (int stage = 0; stage < stages; ++stage) {
    plan.blocks.push_back({cuts[stage], cuts[stage + 1] - 1});
    plan.inputs.push_back(costs[cuts[stage]].takes);
    if (stage > 0) plan.cut.push_back(costs[cuts[stage]].name);
  }
  return plan;
}

}  // namespace tandem::job
