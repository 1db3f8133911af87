#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <vector>

#include "tandem/job/job.h"
#include "tandem/parallel/mesh.h"

namespace tandem::job {

/// What a block takes of each image.
struct ValueShape {
  std::vector<int64_t> sizes;  // without the images' dim, the first
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  bool requires_grad = false;

  int64_t numbers() const;  // of an image
};

/// What a stage takes: on a nominal core, as shapes tell, the same on each machine; or as this process measures it.
enum class CutBy : uint8_t { work, time };

/// A part of a block, or a block that has none, on one of the ranks along tensor.
struct PartCost {
  std::string name;  // as pipeline.cut has it
  int64_t block = 0, part = 0;
  double seconds = 0, nominal_seconds = 0;  // forward and backward of a micro-batch
  std::vector<ValueShape> takes;
  // If they are rehearsed, of a micro-batch:
  double forward = 0, backward = 0;  // seconds
  int64_t held_bytes = 0;            // from forward to backward
  int64_t block_bytes = 0;           // more than those, at the most, while it runs
  int64_t weight_bytes = 0;          // of its parameters
};

/// Images of a rank in a micro-batch.
double images_of(const Job& job);

/// Of each part of each block of the model. Each block is made, run and dropped alone. `rehearses`: their memory and
/// their halves, too. Every rank finds the same by CutBy::work. Throws SettingsError: model.freeze names nothing.
/// Collective over the ranks along tensor.
std::vector<PartCost> part_costs(const Job& job, const std::array<int64_t, 3>& shape, parallel::Mesh& mesh, CutBy by,
                                 bool rehearses = false);

/// The first parts of `stages` stages, and the end, so that the slowest stage is as fast as it can be; inside blocks
/// only if there are too few of them. `last`: seconds of what follows the last block.
std::vector<int64_t> cuts_by_cost(const std::vector<PartCost>& costs, double last, int stages);

int64_t num_blocks(const std::vector<PartCost>& costs);

/// How much longer the model takes than on a nominal core.
double slower_than_nominal(const std::vector<PartCost>& costs);

/// On a nominal core, of so many classes of a rank: the logits are worked out twice, and the gradients of features and
/// weights once. `rows`: that are scored.
double seconds_of_classifier(const Job& job, double classes, double rows);

}  // namespace tandem::job
