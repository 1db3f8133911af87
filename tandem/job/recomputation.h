#pragma once
#include <optional>

#include "tandem/comm/process_group.h"
#include "tandem/job/parts.h"
#include "tandem/memory/rehearsal.h"

namespace tandem::job {

struct Recomputation {
  memory::RecomputePlan plan;  // empty: nothing is recomputed
  double slowdown = 1;         // predicted, of forward and backward; by the work in them, not by a clock
  /// The step of rank 0 with this plan, where choosing has rehearsed it.
  std::optional<memory::Composition> step = {};
};

/// What a step of the job recomputes, by the settings recompute and memory.budget: the same on each machine and in each
/// run. The blocks of rank 0, which has most images, are rehearsed (memory/rehearsal.h), and the plan that is chosen is
/// rehearsed once more to see that the budget holds. With a pipeline each rank has a plan of its own, of each of its
/// stages alone: that of `rank`. `counts`: classes of each rank. `batches`: of a training epoch; 0: as many as are read
/// ahead.
///
/// Memory: a rank's parameters and optimizer state, and one block's activations. Not collective. Throws SettingsError,
/// which names the least budget and the block that sets it, if the budget is too small.
Recomputation choose_recomputation(const Job& job, const DataShape& shape, const std::vector<int64_t>& counts,
                                   int64_t batches = 0, int rank = 0);

/// The same, chosen by rank 0 for all, where `step` is known; or, with a pipeline, that of the calling rank.
/// Collective.
Recomputation choose_recomputation(const Job& job, const DataShape& shape, comm::ProcessGroup& group,
                                   int64_t batches = 0);

}  // namespace tandem::job
