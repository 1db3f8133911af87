#pragma once
#include "tandem/job/recomputation.h"
#include "tandem/memory/rehearsal.h"
#include "tandem/memory/timeline.h"

namespace tandem::job {

/// The memory of one training step on this rank.
struct StepMemory {
  memory::Timeline timeline;
  memory::Composition predicted;  // before the step
  CategoryBytes at_peak{};        // measured, by category
  double seconds = 0;
  Recomputation recomputation;
};

/// Trains two steps of the job on random images of `shape` and measures the second, which has the optimizer's state.
/// Needs the memory meter. Collective. Throws SettingsError as training does.
StepMemory measure_step(const Job& job, const DataShape& shape, comm::ProcessGroup& group);

}  // namespace tandem::job
