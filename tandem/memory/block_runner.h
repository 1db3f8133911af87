#pragma once
#include "tandem/memory/chain.h"

namespace tandem::memory {

/// Runs blocks of a chain in another way than one after the other on the whole flow: on several parts of a batch at
/// once, say. A chain may be planned (planned_chain.h) with its blocks in a runner's hands: the plan acts inside.
class BlockRunner {
 public:
  virtual ~BlockRunner() = default;

  /// Does for `blocks`, which are neighbours of a chain and have no runner here, what run(blocks, input) would do.
  virtual Flow run(const Chain& blocks, const Flow& input) = 0;
};

/// The same chain, with each run of neighbours that have the same runner as one block, which calls the runner and has
/// the name of its last. run() runs this chain.
Chain by_runners(const Chain& chain);

}  // namespace tandem::memory
