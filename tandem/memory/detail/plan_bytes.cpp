#include "tandem/memory/detail/plan_bytes.h"

#include <algorithm>

namespace tandem::memory::detail {

PlanBytes::PlanBytes(const std::vector<Stage>& stages) : stages_(stages), gradients_after_(stages.size()) {
  int64_t gradients = 0, held = 0;
  for (size_t i = stages.size(); i-- > 0; gradients += stages[i].gradients) gradients_after_[i] = gradients;
  for (const auto& stage : stages) {
    most_before_.push_back(held);
    held += stage.output + std::ranges::max(stage.keeps, {}, &Keep::bytes).bytes;
  }
}

int64_t PlanBytes::flow_beyond(int held, int k) const {
  if (k < 0) return 0;
  int64_t bytes = stages_[k].output;
  for (const auto& shortcut : stages_[k].shortcuts) {
    if (shortcut.stage > held) bytes += shortcut.bytes;
  }
  return bytes;
}

int PlanBytes::same_held(int held, int flow) const {
  int same = -1;
  for (const auto& shortcut : stages_[flow].shortcuts) {
    if (shortcut.stage <= held) same = std::max(same, shortcut.stage);
  }
  return same;
}

}  // namespace tandem::memory::detail
