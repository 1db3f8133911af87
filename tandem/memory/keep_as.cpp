#include <ATen/ATen.h>

#include "tandem/memory/detail/keep_frame.h"
#include "tandem/memory/keep_ways.h"

namespace tandem::memory {

Flow keep_as(const KeepWay& way, const std::function<Flow(const Flow&)>& forward, const Flow& inputs,
             const KeepOptions& options) {
  if (!at::GradMode::is_enabled()) return forward(inputs);
  return std::make_shared<detail::KeepFrame>(way, options)->run(forward, inputs);
}

Tensor keep_as(const KeepWay& way, const std::function<Tensor(const Tensor&)>& forward, const Tensor& input,
               const KeepOptions& options) {
  const auto of_flow = [&](const Flow& flow) { return Flow{forward(flow[0])}; };
  return std::move(keep_as(way, of_flow, Flow{input}, options)[0]);
}

Chain kept_chain(const Chain& chain, const KeepWay& way) {
  Chain kept = chain;
  for (auto& block : kept.blocks) {
    const KeepOptions options{block.name, block.modules};
    block.forward = [&way, options, forward = block.forward](const Flow& flow) {
      return keep_as(way, forward, flow, options);
    };
  }
  return kept;
}

}  // namespace tandem::memory
