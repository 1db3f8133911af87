#pragma once
#include <functional>

namespace tandem::classifier::detail {

/// body(lane) for 0..lanes - 1, each on a thread of its own as far as libtorch has as many, with the caller's gradient
/// mode and memory account. What a body calls runs on its one thread, except where there is one lane only.
void run_lanes(int lanes, const std::function<void(int lane)>& body);

}  // namespace tandem::classifier::detail
