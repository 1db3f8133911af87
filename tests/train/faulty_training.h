#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "tandem/comm/world.h"
#include "tandem/parallel/strategy.h"
#include "tandem/train/trainer.h"

namespace tandem::train {

/// A strategy with options.
struct FaultyForm {
  std::string name;
  const parallel::Strategy* strategy = nullptr;
  parallel::ParameterServerOptions ps = {};

  bool is_alone() const { return strategy->is_one_process; }  // a world of one rank
  bool has_same_losses() const { return ps.staleness == 0; }  // as every run without fault
};

/// Each strategy as it is, then servers apart that update, of workers that wait for each other and that do not.
std::vector<FaultyForm> faulty_forms();

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
int faulty_world(const FaultyForm& form);

/// The world's options for a fault, with flight records in `folder`.
comm::WorldOptions faulty_world_options(const TrainingFault& fault, const FaultyForm& form,
                                        const std::filesystem::path& folder);

/// Trains an mlp in float64, from the newest checkpoint in `folder` on. The rank at fault writes the
/// file `happened` into it first. Collective.
Outcome train_with_fault(const FaultyForm& form, const TrainingFault& fault, const std::filesystem::path& folder,
                         comm::ProcessGroup& group);

}  // namespace tandem::train
