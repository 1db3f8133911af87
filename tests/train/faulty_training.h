#pragma once
#include <filesystem>
#include <string>

#include "tandem/comm/world.h"
#include "tandem/parallel/strategy.h"
#include "tandem/train/trainer.h"

namespace tandem::train {

/// How one rank of a small training goes wrong.
struct TrainingFault {
  /// forward: in the middle block of the model; backward: in the same block; exchange: at the end of backward, before
  /// the gradients of the last blocks have travelled; server: on the thread that sums, or in the server's sum; save:
  /// before the rank writes its part of a checkpoint; write: in the middle of writing it; "": no fault.
  std::string place;
  /// throw: a DataError; kill: SIGKILL; slow: it takes ten times as long, in each step; late: it comes back when
  /// another rank has given up.
  std::string kind;
  int rank = 0;  // of the world; with replicas in one process, the turn of the replica
};

constexpr int kFaultyRanks = 3;                                        // ranks, or replicas in one process
constexpr int64_t kFaultyStep = 5, kFaultySave = 4, kFaultySteps = 6;  // counted from 1; a save after every second step

/// The ranks of the world in which so many share a batch.
int faulty_world(const parallel::Strategy& strategy);

/// The world's options for a fault, with flight records in `folder`.
comm::WorldOptions faulty_world_options(const TrainingFault& fault, const parallel::Strategy& strategy,
                                        const std::filesystem::path& folder);

/// Trains an mlp in float64 under a strategy, from the newest checkpoint in `folder` on. The rank at fault writes the
/// file `happened` into it first. Collective.
Outcome train_with_fault(const parallel::Strategy& strategy, const TrainingFault& fault,
                         const std::filesystem::path& folder, comm::ProcessGroup& group);

}  // namespace tandem::train
