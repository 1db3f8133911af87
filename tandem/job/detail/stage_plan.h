#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <vector>

#include "tandem/job/detail/part_costs.h"
#include "tandem/job/job.h"
#include "tandem/memory/chain.h"
#include "tandem/models/model.h"
#include "tandem/parallel/mesh.h"
#include "tandem/pipeline/program.h"

namespace tandem::job {

/// How the job's model is cut into the stages of its pipeline.
struct StagePlan {
  std::vector<int> rank_of;                     // of each stage, its coordinate along the axis pipeline
  std::vector<models::BlockRange> blocks;       // of each stage
  std::vector<std::vector<ValueShape>> inputs;  // of each stage: its flow
  std::vector<std::string> cut;                 // with what the stages but the first begin, as pipeline.cut has it

  int num_stages() const { return static_cast<int>(rank_of.size()); }
  bool is_last(int stage) const { return stage + 1 == num_stages(); }

  /// In the order of the model.
  std::vector<int> stages_of(int coordinate) const { return pipeline::stages_of(rank_of, coordinate); }
  std::vector<models::BlockRange> blocks_of(int coordinate) const;

  /// What a stage takes of so many images, without values.
  memory::Flow input_of(int stage, int64_t images, const at::TensorOptions& options) const;
};

/// The first parts of so many stages, and the end: as pipeline.cut says, or by what parts take. `last`: seconds of what
/// follows the last block. Throws SettingsError: a cut that names none.
std::vector<int64_t> cuts_of(const Job& job, const std::vector<PartCost>& costs, double last, int stages);

/// Cuts as pipeline.cut says, or so that the slowest stage, the last with the classifier, is as fast as it can be by
/// `by` (memory::BlockWork, or the best of a few runs); inside blocks, where shortcuts travel along, only if there are
/// too few of them. Each block is made, run and dropped alone, so that no rank has more than one of those it does not
/// hold. Every rank finds the same. Throws SettingsError: more stages than parts of blocks, a cut that names none.
/// Collective over the ranks along tensor.
StagePlan plan_stages(const Job& job, const DataShape& shape, parallel::Mesh& mesh, CutBy by = CutBy::work);

}  // namespace tandem::job
