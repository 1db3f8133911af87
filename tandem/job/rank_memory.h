#pragma once
#include <vector>

#include "tandem/job/job.h"
#include "tandem/memory/rehearsal.h"

namespace tandem::job {

/// What one rank holds between training steps, and at the peak of a step, before any has run. The rank's parts are made
/// as training makes them, for a rehearsal group, and each block of the step runs alone, on synthetic images of the
/// real batch (memory/rehearsal.h). Equal to what training measures with threads=1 and thread-ranks if all targets of a
/// batch are classes of this rank; otherwise up to 1 KB more. Process-ranks hold messages in flight besides.
///
/// `counts`: classes of each rank. `batches`: of an epoch. Memory: the rank's parameters and optimizer state, and one
/// block's activations. Not collective.
memory::Composition rehearse_rank(const Job& job, const DataShape& shape, int rank, const std::vector<int64_t>& counts,
                                  int64_t batches);

}  // namespace tandem::job
