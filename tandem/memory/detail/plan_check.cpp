#include "tandem/memory/detail/plan_check.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace tandem::memory::detail {
namespace {

bool passes_on(const Stage& stage, int number, const Shortcut& wanted) {
  if (number == wanted.stage) return stage.output >= wanted.bytes;
  return std::ranges::any_of(stage.shortcuts, [&](const Shortcut& shortcut) {
    return shortcut.stage == wanted.stage && shortcut.bytes >= wanted.bytes;
  });
}

void check_nodes(const RecomputePlan& nodes, const std::vector<Stage>& stages, int first, int last) {
  int next = first;
  for (const auto& node : nodes) {
    TORCH_CHECK_VALUE(node.first == next && node.last >= node.first && node.last <= last, "plan: a part covers blocks ",
                      node.first, " to ", node.last, ", wanted them from ", next, " on, up to ", last);
    next = node.last + 1;
    if (!node.inner.empty()) {
      check_nodes(node.inner, stages, node.first, node.last);
      continue;
    }
    TORCH_CHECK_VALUE(node.first == node.last, "plan: blocks ", node.first, " to ", node.last,
                      " have no inner plan, wanted one");
    const auto ways = static_cast<int>(stages[node.first].keeps.size());
    TORCH_CHECK_VALUE(node.keep >= 0 && node.keep < ways, "plan: keep of block ", node.first, " is ", node.keep,
                      ", wanted 0 to ", ways - 1);
  }
  TORCH_CHECK_VALUE(next == last + 1, "plan: blocks end with ", next - 1, ", wanted ", last);
}

}  // namespace

void check_stages(const std::vector<Stage>& stages) {
  TORCH_CHECK_VALUE(!stages.empty(), "chain: it has no blocks, wanted at least one");
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto& stage = stages[i];
    const bool spares_outputs =
        std::ranges::any_of(stage.keeps, [](const Keep& keep) { return keep.output && keep.spared > 0; });
    TORCH_CHECK_VALUE(!spares_outputs, "chain[", i, "]: block ", stage.name,
                      " spares a part of forward, wanted none where its output stays");
    bool positive = stage.output >= 0 && stage.forward_extra >= 0 && stage.gradients >= 0 && stage.forward >= 0;
    for (const auto& keep : stage.keeps) {
      positive = positive && keep.bytes >= 0 && keep.forward_extra >= 0 && keep.backward_extra >= 0 &&
                 keep.forward >= keep.spared && keep.spared >= 0 && keep.backward >= 0;
    }
    TORCH_CHECK_VALUE(positive, "chain[", i, "]: block ", stage.name, " has a negative cost, wanted none below 0");
    TORCH_CHECK_VALUE(!stage.keeps.empty(), "chain[", i, "]: block ", stage.name, " has no way to keep, wanted one");
    for (const auto& shortcut : stage.shortcuts) {
      TORCH_CHECK_VALUE(shortcut.stage >= 0 && shortcut.stage < static_cast<int>(i) && shortcut.bytes >= 0 &&
                            passes_on(stages[i - 1], static_cast<int>(i) - 1, shortcut),
                        "chain[", i, "]: block ", stage.name, " passes on ", shortcut.bytes, " B of block ",
                        shortcut.stage, ", wanted what the block before passes on");
    }
  }
}

void check_plan(const RecomputePlan& plan, const std::vector<Stage>& stages) {
  check_stages(stages);
  check_nodes(plan, stages, 0, static_cast<int>(stages.size()) - 1);
}

}  // namespace tandem::memory::detail
