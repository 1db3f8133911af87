#pragma once
#include "tandem/memory/chain.h"
#include "tandem/memory/recompute_plan.h"

namespace tandem::memory {

/// The chain that executes a plan: a block for each of its nodes. A kept block stays as it is; blocks that are
/// recomputed become one block, which calls recompute() (recompute.h) and has the name of their last.
///
///   plan    0 (1-2 (3-4)) 5
///   blocks  [0] [recompute 1, 2, [recompute 3, 4]] [5]
///
/// Results and gradients have the same bits as the chain's. Throws c10::ValueError if the plan is of another number of
/// blocks, or keeps in another way than plainly.
Chain planned_chain(const Chain& chain, const RecomputePlan& plan);

}  // namespace tandem::memory
