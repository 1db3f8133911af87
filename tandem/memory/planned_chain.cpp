#include "tandem/memory/planned_chain.h"

#include <c10/util/Exception.h>

#include "tandem/memory/recompute.h"

namespace tandem::memory {
namespace {

Block block_of(const Chain& chain, const PlanNode& node);

Chain nodes_of(const Chain& chain, const RecomputePlan& plan) {
  Chain nodes;
  for (const auto& node : plan) nodes.blocks.push_back(block_of(chain, node));
  return nodes;
}

Block block_of(const Chain& chain, const PlanNode& node) {
  if (node.inner.empty()) {
    TORCH_CHECK_VALUE(node.keep == 0, "plan: it keeps block ", node.first, " in the way ", node.keep, ", wanted 0");
    return chain.blocks[static_cast<size_t>(node.first)];
  }
  Block block{.name = chain.blocks[static_cast<size_t>(node.last)].name};
  for (int i = node.first; i <= node.last; ++i) {
    for (const auto& module : chain.blocks[static_cast<size_t>(i)].modules) block.modules.push_back(module);
  }
  const auto& first = chain.blocks[static_cast<size_t>(node.first)].name;
  const RecomputeOptions options{.name = first == block.name ? first : first + " to " + block.name,
                                 .modules = block.modules};
  block.forward = [inner = nodes_of(chain, node.inner), options](const Flow& flow) {
    return recompute([inner](const Flow& values) { return run(inner, values); }, flow, options);
  };
  return block;
}

}  // namespace

Chain planned_chain(const Chain& chain, const RecomputePlan& plan) {
  const int blocks = plan.empty() ? 0 : plan.back().last + 1;
  TORCH_CHECK_VALUE(blocks == static_cast<int>(chain.blocks.size()), "plan: it is of ", blocks, " blocks, wanted ",
                    chain.blocks.size());
  return nodes_of(chain, plan);
}

}  // namespace tandem::memory
