#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "tandem/job/memory_plan.h"

namespace tandem::job {

/// Peaks of all ranks, given the classes of each.
using PeaksOf = std::function<std::vector<RankPeak>(const std::vector<int64_t>& counts)>;

/// The split of the classes under memory.limit: in proportion to the classes for which the limits leave room, such that
/// the peak of each rank is within its limit. Throws SettingsError, which names the rank and the block that need most
/// above their limit, if there is none; without asking for peaks if `plan` is far from finding any. A head that is
/// whole on each rank is not split: the limits are only checked.
std::vector<int64_t> fit_counts(const MemoryPlan& plan, const PeaksOf& peaks_of);

/// The largest number of classes of each rank within memory.limit. For heads that are split.
std::vector<int64_t> largest_counts(const MemoryPlan& plan, const PeaksOf& peaks_of);

}  // namespace tandem::job
