#pragma once
#include <cstdint>
#include <vector>

namespace tandem::job {

/// Memory limits of the ranks, and what is recorded.
struct Memory {
  std::vector<int64_t> limits;  // bytes of each rank; empty: no limit
  int64_t event_steps = 0;      // first steps of a run whose events are kept

  bool is_limited() const { return !limits.empty(); }
};

}  // namespace tandem::job
