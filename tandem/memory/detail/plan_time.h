#pragma once
#include <cmath>
#include <cstdint>

#include "tandem/memory/recompute_plan.h"

namespace tandem::memory::detail {

/// Whole numbers, so that sums do not depend on their order.
inline int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

/// Of a block that is kept.
inline double forward_seconds(const Keep& way, bool ends_replay) {
  return ends_replay ? way.forward - way.spared : way.forward;
}

}  // namespace tandem::memory::detail
