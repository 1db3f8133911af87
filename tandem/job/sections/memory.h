#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tandem/memory/recompute_plan.h"

namespace tandem::job {

/// Memory limits of the ranks, what is recomputed, and what is recorded.
struct Memory {
  std::vector<int64_t> limits;    // bytes of each rank; empty: no limit
  std::optional<int64_t> guard;   // bytes that no rank may exceed in training, of a plan that was chosen to fit them
  std::optional<int64_t> budget;  // bytes of activations at their highest
  const memory::PlanMethod* recompute = &memory::plan_methods().front();
  int64_t event_steps = 0;  // first steps of a run whose events are kept

  bool recomputes() const { return recompute != &memory::plan_methods().front(); }
  bool is_limited() const { return !limits.empty(); }
};

}  // namespace tandem::job
