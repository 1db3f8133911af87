#include "tandem/memory/planned_chain.h"

#include <c10/util/Exception.h>

#include <span>

#include "tandem/memory/keep_ways.h"
#include "tandem/memory/recompute.h"

namespace tandem::memory {
namespace {

using Nodes = std::span<const PlanNode>;

Chain nodes_of(const Chain& chain, Nodes nodes);

/// One block for some neighbours, without its forward.
Block block_around(const Chain& chain, int first, int last) {
  Block block{.name = chain.blocks[static_cast<size_t>(last)].name};
  for (int i = first; i <= last; ++i) {
    for (const auto& module : chain.blocks[static_cast<size_t>(i)].modules) block.modules.push_back(module);
  }
  return block;
}

std::string name_of(const Chain& chain, int first, int last) {
  const auto &from = chain.blocks[static_cast<size_t>(first)].name, &to = chain.blocks[static_cast<size_t>(last)].name;
  return from == to ? from : from + " to " + to;
}

Block recomputed(const Chain& chain, const PlanNode& node) {
  auto block = block_around(chain, node.first, node.last);
  const RecomputeOptions options{.name = name_of(chain, node.first, node.last), .modules = block.modules};
  block.forward = [inner = nodes_of(chain, node.inner), options](const Flow& flow) {
    return recompute([inner](const Flow& values) { return run(inner, values); }, flow, options);
  };
  return block;
}

Block kept(const Chain& chain, int first, int last, const KeepWay& way) {
  auto block = block_around(chain, first, last);
  const KeepOptions options{name_of(chain, first, last), block.modules};
  Chain inner{{chain.blocks.begin() + first, chain.blocks.begin() + last + 1}};
  block.forward = [inner, options, &way](const Flow& flow) {
    return keep_as(
        way, [&](const Flow& values) { return run(inner, values); }, flow, options);
  };
  return block;
}

/// How many of the first nodes make one block.
size_t together(Nodes nodes) {
  size_t count = 1;
  const auto is_kept = [](const PlanNode& node) { return node.inner.empty() && node.keep > 0; };
  if (!is_kept(nodes[0])) return count;
  while (count < nodes.size() && is_kept(nodes[count]) && nodes[count].keep == nodes[0].keep) ++count;
  return count;
}

Block block_of(const Chain& chain, Nodes nodes) {
  const auto& node = nodes[0];
  if (!node.inner.empty()) return recomputed(chain, node);
  if (node.keep == 0) return chain.blocks[static_cast<size_t>(node.first)];
  const auto& ways = keep_ways();
  TORCH_CHECK_VALUE(node.keep <= static_cast<int>(ways.size()), "plan: it keeps block ", node.first, " in the way ",
                    node.keep, ", wanted 0 to ", ways.size());
  return kept(chain, node.first, nodes.back().last, ways[static_cast<size_t>(node.keep) - 1]);
}

Chain nodes_of(const Chain& chain, Nodes nodes) {
  Chain blocks;
  while (!nodes.empty()) {
    const auto count = together(nodes);
    blocks.blocks.push_back(block_of(chain, nodes.first(count)));
    nodes = nodes.subspan(count);
  }
  return blocks;
}

}  // namespace

Chain planned_chain(const Chain& chain, const RecomputePlan& plan) {
  const int blocks = plan.empty() ? 0 : plan.back().last + 1;
  TORCH_CHECK_VALUE(blocks == static_cast<int>(chain.blocks.size()), "plan: it is of ", blocks, " blocks, wanted ",
                    chain.blocks.size());
  return nodes_of(chain, plan);
}

}  // namespace tandem::memory
