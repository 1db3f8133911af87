#include "tandem/job/model_facts.h"

#include <ATen/ATen.h>

#include "tandem/job/parts.h"
#include "tandem/models/backbone.h"

namespace tandem::job {

ModelFacts model_facts(const Job& job) {
  const auto shape = shape_for_model(job, job.data.source->image_shape(job));
  const auto backbone = make_backbone(job, shape);
  ModelFacts facts{.auxiliary_dim = backbone->auxiliary_dim()};
  for (const auto& parameter : backbone->parameters()) facts.parameters += parameter.numel();
  for (const auto& buffer : backbone->buffers()) facts.buffers += buffer.numel();
  const auto images = at::zeros({job.training.batch, shape[0], shape[1], shape[2]}, job.training.precision.type);
  facts.blocks = memory::measure(backbone->chain(), {images});
  return facts;
}

}  // namespace tandem::job
