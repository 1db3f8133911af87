#include "tandem/memory/chain.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>

#include "tandem/base/context.h"
#include "tandem/memory/block_runner.h"

namespace tandem::memory {
namespace {

thread_local BlockObserver* block_observer = nullptr;

}  // namespace

BlockObserverScope::BlockObserverScope(BlockObserver* observer) : before_(std::exchange(block_observer, observer)) {}
BlockObserverScope::~BlockObserverScope() { block_observer = before_; }

Block make_block(std::string name, std::vector<std::shared_ptr<torch::nn::Module>> modules,
                 std::function<Tensor(const Tensor&)> forward) {
  return {std::move(name), std::move(modules),
          [forward = std::move(forward)](const Flow& flow) { return Flow{forward(flow.at(0))}; }};
}

Block make_block(std::string name, std::vector<Block> parts) {
  Block block{.name = std::move(name), .modules = {}, .forward = {}};
  for (auto& part : parts) {
    part.name = block.name;
    for (const auto& module : part.modules) block.modules.push_back(module);
  }
  block.forward = [parts](const Flow& input) {
    auto flow = parts.at(0).forward(input);
    for (size_t i = 1; i < parts.size(); ++i) flow = parts[i].forward(flow);
    return flow;
  };
  block.parts = std::move(parts);
  return block;
}

std::vector<Tensor> parameters_of(const Block& block) {
  std::vector<Tensor> all;
  for (const auto& module : block.modules) {
    for (auto& parameter : module->parameters()) all.push_back(parameter);
  }
  return all;
}

std::vector<Tensor> buffers_of(const Block& block) {
  std::vector<Tensor> all;
  for (const auto& module : block.modules) {
    for (auto& buffer : module->buffers()) all.push_back(buffer);
  }
  return all;
}

void mark_backward(const Tensor& output, int block) {
  // Backward computes the gradient of a block's outputs before it works in the block.
  if (output.defined() && output.requires_grad()) output.register_hook([block](const Tensor&) { enter_block(block); });
}

Flow run(const Chain& chain, Flow input) {
  const auto has_runner = [](const Block& block) { return block.runner != nullptr; };
  if (std::ranges::any_of(chain.blocks, has_runner)) return run(by_runners(chain), std::move(input));
  auto flow = std::move(input);
  for (const auto& block : chain.blocks) {
    const int number = block_number(block.name);
    const BlockScope scope(number);
    flow = block.forward(flow);
    for (const auto& output : flow) mark_backward(output, number);
    if (block_observer != nullptr) block_observer->ran(block, flow);
  }
  return flow;
}

Tensor run(const Chain& chain, Tensor input) {
  Flow first;
  first.push_back(std::move(input));
  auto flow = run(chain, std::move(first));
  TORCH_CHECK_VALUE(flow.size() == 1, "chain: its last block gives ", flow.size(), " values, wanted one");
  return std::move(flow[0]);
}

Chain chain_of(const std::shared_ptr<torch::nn::SequentialImpl>& sequential) {
  Chain chain;
  for (auto child : *sequential) {
    chain.blocks.push_back(make_block(std::to_string(chain.blocks.size()), {child.ptr()},
                                      [child](const Tensor& x) mutable { return child.forward<Tensor>(x); }));
  }
  return chain;
}

Chain in_parts(const Chain& chain) {
  Chain cut;
  for (const auto& block : chain.blocks) {
    if (block.parts.empty()) cut.blocks.push_back(block);
    for (const auto& part : block.parts) {
      cut.blocks.push_back(part);
      cut.blocks.back().runner = block.runner;
    }
    if (!block.parts.empty()) cut.blocks.back().output = block.output;
  }
  return cut;
}

Chain chain_of(const std::string& name, const std::shared_ptr<torch::nn::Module>& module,
               std::function<Tensor(const Tensor&)> forward) {
  return {{make_block(name, {module}, std::move(forward))}};
}

}  // namespace tandem::memory
