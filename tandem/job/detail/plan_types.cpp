#include "tandem/job/detail/plan_types.h"

#include <ATen/ATen.h>

#include "tandem/job/parts.h"
#include "tandem/layers/placed.h"
#include "tandem/layers/type_check.h"
#include "tandem/models/backbone.h"

namespace tandem::job {

void check_types(const Job& job, const DataShape& shape) {
  const auto sizes = job.parallel.mesh(job.parallel.ranks);
  if (sizes.tensor == 1) return;
  const auto world = comm::make_rehearsal_group(0, job.parallel.ranks, job.parallel.transport);
  parallel::Mesh mesh(sizes, *world);
  const auto backbone = make_backbone(job, shape.image, &mesh);
  constexpr parallel::Axes kTensor = {parallel::Axis::tensor};
  std::vector<layers::TypeCheck::Direction> directions = {{.axes = kTensor, .group = &mesh.group(kTensor)}};
  const bool has_batch = sizes.size(parallel::kBatchAxes) > 1;
  if (has_batch) {
    directions.push_back({.axes = parallel::kBatchAxes, .group = &mesh.batch(), .sums_gradients = true});
  }
  layers::TypeCheck check(directions, layers::parameters_of(*backbone, mesh));
  const auto& [channels, height, width] = shape.image;
  const auto images = at::zeros({2, channels, height, width},
                                at::TensorOptions(job.training.precision.type).device(job.parallel.device));
  check.know(images, kTensor, Along::invariant);
  if (has_batch) check.know(images, parallel::kBatchAxes, Along::varying);
  const auto features = check.run(backbone->chain(), {images})[0];
  check.expect("the features", features, kTensor, Along::invariant);
  if (has_batch) check.expect("the features", features, parallel::kBatchAxes, Along::varying);
}

}  // namespace tandem::job
