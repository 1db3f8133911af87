#pragma once
#include <cmath>
#include <random>
#include <vector>

#include "tandem/memory/recompute_plan.h"

namespace tandem::test {

struct RandomStages {
  int count = 1;
  int ways = 1;            // to keep a block: up to so many
  bool shortcuts = false;  // blocks pass on a part of what they receive
  bool flags = false;      // some ways do without the input or the output
  bool spares = false;     // some have saved all before the end of forward
};

/// A chain with small whole costs, so that many plans tie. Forward and backward take whole nanoseconds.
inline std::vector<memory::Stage> random_stages(const RandomStages& options, std::mt19937& generator) {
  const auto up_to = [&](int most) { return static_cast<int>(generator() % (most + 1)); };
  std::vector<memory::Stage> stages(options.count);
  for (int i = 0; i < options.count; ++i) {
    auto& stage = stages[i];
    stage = {.name = "block" + std::to_string(i), .output = up_to(6), .forward_extra = up_to(12)};
    stage.forward = up_to(9) * 1e-9;
    stage.gradients = options.flags ? up_to(2) : 0;
    stage.keeps.resize(1 + up_to(options.ways - 1));
    for (auto& keep : stage.keeps) {
      keep = {.bytes = up_to(8), .forward_extra = up_to(3), .backward_extra = up_to(6)};
      keep.input = !options.flags || up_to(2) > 0;
      keep.output = !options.flags || up_to(2) > 0;
      keep.forward = stage.forward + up_to(2) * 1e-9;
      keep.backward = up_to(9) * 1e-9;
      keep.spared =
          options.spares && !keep.output ? up_to(static_cast<int>(std::lround(stage.forward * 1e9))) * 1e-9 : 0;
    }
    if (!options.shortcuts || i == 0) continue;
    auto passed = stages[i - 1].shortcuts;
    passed.push_back({i - 1, stages[i - 1].output});
    for (const auto& [source, bytes] : passed) {
      if (up_to(1) > 0) stage.shortcuts.push_back({source, bytes - (bytes > 0 ? up_to(1) : 0)});
    }
  }
  return stages;
}

}  // namespace tandem::test
