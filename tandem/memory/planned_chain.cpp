#include "tandem/memory/planned_chain.h"

#include <c10/util/Exception.h>

#include <span>

#include "tandem/memory/keep_ways.h"
#include "tandem/memory/recompute.h"

namespace tandem::memory {
namespace {

using Nodes = std::span<const PlanNode>;

Chain nodes_of(const Chain& chain, Nodes nodes);

/// One block for some neighbours that have one runner, without its forward.
Block block_around(const Chain& chain, int first, int last) {
  Block block{.name = chain.blocks[static_cast<size_t>(last)].name};
  block.runner = chain.blocks[static_cast<size_t>(last)].runner;
  block.output = chain.blocks[static_cast<size_t>(last)].output;
  for (int i = first; i <= last; ++i) {
    for (const auto& module : chain.blocks[static_cast<size_t>(i)].modules) block.modules.push_back(module);
  }
  return block;
}

/// For blocks that a runner runs inside another block of its own.
Chain without_runner(Chain chain) {
  for (auto& block : chain.blocks) block.runner = nullptr;
  return chain;
}

BlockRunner* runner_of(const Chain& chain, const PlanNode& node) {
  return chain.blocks[static_cast<size_t>(node.first)].runner;
}

/// The same plan, with each node that spans blocks of different runners cut between them: what is recomputed lies
/// inside one runner. At the cut a flow is kept.
RecomputePlan within_runners(const Chain& chain, Nodes nodes) {
  RecomputePlan plan;
  for (const auto& node : nodes) {
    const auto inner = within_runners(chain, node.inner);
    if (inner.empty()) plan.push_back(node);
    for (size_t i = 0, end; i < inner.size(); i = end) {
      for (end = i + 1; end < inner.size() && runner_of(chain, inner[end]) == runner_of(chain, inner[i]);) ++end;
      plan.push_back({inner[i].first, inner[end - 1].last, 0, {inner.begin() + i, inner.begin() + end}});
    }
  }
  return plan;
}

std::string name_of(const Chain& chain, int first, int last) {
  const auto &from = chain.blocks[static_cast<size_t>(first)].name, &to = chain.blocks[static_cast<size_t>(last)].name;
  return from == to ? from : from + " to " + to;
}

Block recomputed(const Chain& chain, const PlanNode& node) {
  auto block = block_around(chain, node.first, node.last);
  const RecomputeOptions options{.name = name_of(chain, node.first, node.last), .modules = block.modules};
  block.forward = [inner = without_runner(nodes_of(chain, node.inner)), options](const Flow& flow) {
    return recompute([inner](const Flow& values) { return run(inner, values); }, flow, options);
  };
  return block;
}

Block kept(const Chain& chain, int first, int last, const KeepWay& way) {
  auto block = block_around(chain, first, last);
  const KeepOptions options{name_of(chain, first, last), block.modules};
  const auto inner = without_runner({{chain.blocks.begin() + first, chain.blocks.begin() + last + 1}});
  block.forward = [inner, options, &way](const Flow& flow) {
    return keep_as(
        way, [&](const Flow& values) { return run(inner, values); }, flow, options);
  };
  return block;
}

/// How many of the first nodes make one block.
size_t together(const Chain& chain, Nodes nodes) {
  size_t count = 1;
  const auto is_kept = [](const PlanNode& node) { return node.inner.empty() && node.keep > 0; };
  if (!is_kept(nodes[0])) return count;
  const auto fits = [&](const PlanNode& node) {
    return is_kept(node) && node.keep == nodes[0].keep && runner_of(chain, node) == runner_of(chain, nodes[0]);
  };
  while (count < nodes.size() && fits(nodes[count])) ++count;
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
    const auto count = together(chain, nodes);
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
  return nodes_of(chain, within_runners(chain, plan));
}

}  // namespace tandem::memory
