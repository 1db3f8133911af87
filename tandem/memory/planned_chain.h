#pragma once
#include "tandem/memory/chain.h"
#include "tandem/memory/recompute_plan.h"

namespace tandem::memory {

/// The chain that executes a plan: a block for each of its nodes. A kept block stays as it is; blocks that are
/// recomputed become one block, which calls recompute() (recompute.h) and has the name of their last. So do neighbours
/// that are kept in the same row of keep_ways(), with keep_as() (keep_ways.h): what two of them save is packed once.
///
///   plan    0 (1-2 (3-4)) 5 6:bf16 7:bf16
///   blocks  [0] [recompute 1, 2, [recompute 3, 4]] [5] [bf16 6, 7]
///
/// A node that spans blocks of different runners (block_runner.h) is cut between them, so that each runner runs whole
/// nodes; a flow is kept at the cut.
///
/// Results have the same bits as the chain's; gradients too, if no way is lossy. Throws c10::ValueError if the plan is
/// of another number of blocks, or keeps in a way beyond the table.
Chain planned_chain(const Chain& chain, const RecomputePlan& plan);

}  // namespace tandem::memory
