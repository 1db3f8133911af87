#pragma once
#include <cmath>
#include <cstdint>

namespace tandem::memory::detail {

/// Whole numbers, so that sums do not depend on their order.
inline int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

}  // namespace tandem::memory::detail
