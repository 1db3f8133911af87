#pragma once
#include <vector>

#include "tandem/memory/recompute_plan.h"

namespace tandem::memory::detail {

/// Throws c10::ValueError if a number is negative, a stage has no way to keep, or a shortcut does not come from the
/// stage before.
void check_stages(const std::vector<Stage>& stages);

/// Also throws c10::ValueError if the plan does not cover the stages in order, or keeps one in a way that it does not
/// have.
void check_plan(const RecomputePlan& plan, const std::vector<Stage>& stages);

}  // namespace tandem::memory::detail
