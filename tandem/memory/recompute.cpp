#include "tandem/memory/recompute.h"

#include <ATen/ATen.h>

#include "tandem/base/tangent.h"
#include "tandem/memory/detail/recompute_frame.h"
#include "tandem/memory/detail/tangent_region.h"

namespace tandem::memory {

Flow recompute(const std::function<Flow(const Flow&)>& forward, const Flow& inputs, const RecomputeOptions& options) {
  if (!at::GradMode::is_enabled()) return forward(inputs);
  if (TangentScope::is_open()) return detail::recompute_with_tangents(forward, inputs, options);
  return std::make_shared<detail::Frame>(forward, inputs, options)->run(inputs);
}

Tensor recompute(const std::function<Tensor(const Tensor&)>& forward, const Tensor& input,
                 const RecomputeOptions& options) {
  const auto of_flow = [forward](const Flow& flow) { return Flow{forward(flow[0])}; };
  return std::move(recompute(of_flow, Flow{input}, options)[0]);
}

}  // namespace tandem::memory
