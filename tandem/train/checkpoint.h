#pragma once
#include <functional>
#include <optional>
#include <string>

#include "tandem/comm/process_group.h"
#include "tandem/train/checkpoint_reader.h"
#include "tandem/train/checkpoint_store.h"
#include "tandem/train/parameter.h"

namespace tandem::train {

/// Everything that a run continues from.
///
/// Rank 0's file holds what all ranks share; each rank's file holds its own rows of split tensors, under the name
/// `<name>.rank_0003`, with a note of which rows they are.
struct TrainingState {
  std::vector<Parameter> tensors;  // parameters, buffers, optimizer state: read when saving, filled when loading
  storage::Identity identity;      // of the job
  storage::Fields trainer;
};

/// Saves on all ranks, or on none: when one rank cannot write, the step is abandoned everywhere, the reason is told
/// once as a warning, and the result is false. Older checkpoints stay then. No rank is late while another writes
/// (comm::JointWork). Collective.
bool save_checkpoint(CheckpointStore& store, int64_t step, const TrainingState& state, comm::ProcessGroup& group);

struct Restored {
  int64_t step = 0;
  storage::Fields trainer;
};

/// Reads what this rank needs of a checkpoint. Not collective; throws as CheckpointReader does when it is no good.
using CheckpointRead = std::function<void(const CheckpointReader& checkpoint)>;

/// The newest checkpoint of this job, up to step `newest`, that every rank can read: rank 0 looks for candidates by
/// manifest and sizes, all ranks call `read` for each, and take it or pass it over together. Each one passed over is
/// told in one warning (rank 0). Nothing when none is left. No rank is late while another reads (comm::JointWork).
/// Collective.
std::optional<storage::Manifest> find_checkpoint(const CheckpointStore& store, const storage::Identity& job,
                                                 std::optional<int64_t> newest, const CheckpointRead& read,
                                                 comm::ProcessGroup& group);

/// Fills `state.tensors` from the newest whole and finite checkpoint of this job, whatever number of ranks wrote it, as
/// find_checkpoint() does. Each rank reads the parts that it needs straight into its tensors, and the ranks together
/// every byte. Nothing when there is none; the tensors hold anything then, since a damaged one may have been read.
/// Collective.
std::optional<Restored> load_checkpoint(const CheckpointStore& store, const TrainingState& state,
                                        std::optional<int64_t> newest, comm::ProcessGroup& group);

}  // namespace tandem::train
