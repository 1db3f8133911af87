#include "tandem/memory/chain.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>

#include "tandem/base/context.h"

namespace tandem::memory {
namespace {

/// Backward computes the gradient of a block's outputs before it works in the block.
void mark_backward(const Flow& outputs, int block) {
  for (const auto& output : outputs) {
    if (output.defined() && output.requires_grad())
      output.register_hook([block](const Tensor&) { enter_block(block); });
  }
}

}  // namespace

Flow run(const Chain& chain, Flow input) {
  auto flow = std::move(input);
  for (const auto& block : chain.blocks) {
    const int number = block_number(block.name);
    const BlockScope scope(number);
    flow = block.forward(flow);
    mark_backward(flow, number);
  }
  return flow;
}

Tensor run(const Chain& chain, const Tensor& input) {
  auto flow = run(chain, Flow{input});
  TORCH_CHECK_VALUE(flow.size() == 1, "chain: its last block gives ", flow.size(), " values, wanted one");
  return std::move(flow[0]);
}

Chain chain_of(const std::shared_ptr<torch::nn::SequentialImpl>& sequential) {
  Chain chain;
  for (auto child : *sequential) {
    chain.blocks.push_back({std::to_string(chain.blocks.size()), {child.ptr()}, [child](const Flow& flow) mutable {
                              return Flow{child.forward<Tensor>(flow.at(0))};
                            }});
  }
  return chain;
}

Chain chain_of(const std::string& name, const std::shared_ptr<torch::nn::Module>& module,
               std::function<Tensor(const Tensor&)> forward) {
  return {{{name, {module}, [module, forward = std::move(forward)](const Flow& flow) {
              return Flow{forward(flow.at(0))};
            }}}};
}

}  // namespace tandem::memory
