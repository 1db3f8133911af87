#pragma once
#include <memory>
#include <vector>

#include "tandem/classifier/class_sharded_head.h"
#include "tandem/parallel/mesh.h"
#include "tandem/train/divided_head.h"
#include "tandem/train/micro_batches.h"

namespace tandem::job::detail {

struct DividedHeadOptions {
  parallel::Axes over;  // of the head
  int stage = 0;        // the coordinate along the pipeline of the last stage
  double scale = 1;     // factor of the loss's gradients
  bool is_imagined = false;
};

/// The passes of a head (classifier/pipeline_head.h) in one step. All must outlive it.
std::unique_ptr<train::DividedHead> make_divided_head(const classifier::ClassShardedHead& head,
                                                      const DividedHeadOptions& options,
                                                      const std::vector<train::BatchPart>& parts, parallel::Mesh& mesh);

}  // namespace tandem::job::detail
