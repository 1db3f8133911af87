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

models::BlockRange range_of(const PartCost& first, const PartCost& last) {
  return {first.block, last.block, first.part, last.part};
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

std::vector<int64_t> cuts_of(const Job& job, const std::vector<PartCost>& costs, double last, int stages) {
  const auto& cut = job.pipeline.cut;
  return cut.empty() ? cuts_by_cost(costs, last, stages) : cuts_by_name(cut, costs, stages);
}

StagePlan plan_stages(const Job& job, const DataShape& shape, parallel::Mesh& mesh, CutBy by) {
  StagePlan plan{.rank_of = stage_ranks(job), .blocks = {}};
  const int stages = plan.num_stages();
  if (stages == 1) return plan;
  const auto costs = part_costs(job, shape.image, mesh, by);
  const auto& head = job.head;
  const int parts = head.form->is_whole ? 1 : mesh.sizes().size(head.over);  // at the last stage alone
  const double own = static_cast<double>(shape.classes) / parts;
  const double classifier =
      divides_head(job) ? 0 : seconds_of_classifier(job, own, images_of(job)) * slower_than_nominal(costs);
  if (stages > std::ssize(costs)) {
    const bool has_several = stages > job.parallel.pipeline;
    const auto schedule =
        has_several ? " with pipeline.schedule=" + job.settings.get_string("pipeline.schedule") : std::string();
    throw SettingsError("mesh.pipeline is " + std::to_string(job.parallel.pipeline) + schedule + ", which makes " +
                            std::to_string(stages) + " stages, wanted at most the " + in_words(costs) + job.model.name,
                        std::string("use fewer ranks along pipeline, ") +
                            (has_several ? "a schedule with fewer stages a rank, " : "") + "or a larger model");
  }
  const auto cuts = cuts_of(job, costs, classifier, stages);
  for (int stage = 0; stage < stages; ++stage) {
    const auto &first = costs[cuts[stage]], &last = costs[cuts[stage + 1] - 1];
    plan.blocks.push_back(range_of(first, last));
    plan.inputs.push_back(first.takes);
    if (stage > 0) plan.cut.push_back(first.name);
  }
  return plan;
}

}  // namespace tandem::job
