#include <c10/util/Exception.h>

#include <algorithm>

#include "tandem/memory/keep_ways.h"
#include "tandem/memory/recompute_plan.h"

namespace tandem::memory {

void add_keep(std::vector<Stage>& stages, const KeepWay& way, const std::vector<Stage>& kept) {
  TORCH_CHECK_VALUE(stages.size() == kept.size(), "stages: there are ", stages.size(), ", but ", kept.size(),
                    " that are kept in the way ", way.name, ", wanted as many");
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto& plain = stages[i].keeps.at(0);
    auto keep = kept[i].keeps.at(0);
    // The record's seconds have those of writing the parts, once.
    const double moved = way.bytes_moved * std::max(0.0, keep.forward - plain.forward);
    keep.name = way.name;
    keep.spared = 0;  // hooks of its own save its tensors
    keep.forward = plain.forward + moved;
    keep.backward = plain.backward + moved;
    stages[i].keeps.push_back(std::move(keep));
  }
}

}  // namespace tandem::memory
