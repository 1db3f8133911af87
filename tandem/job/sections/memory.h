#pragma once
#include <cstdint>
#include <vector>

namespace tandem::job {

/// Memory limits of the ranks.
struct Memory {
  std::vector<int64_t> limits;  // bytes of each rank; empty: no limit

  bool is_limited() const { return !limits.empty(); }
};

}  // namespace tandem::job
