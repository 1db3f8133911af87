#pragma once
#include <optional>
#include <string>

#include "tandem/comm/process_group.h"
#include "tandem/train/checkpoint_store.h"
#include "tandem/train/parameter.h"

namespace tandem::train {

/// Everything that a run continues from.
///
/// Rank 0's file holds what all ranks share; each rank's file holds its own rows of split tensors, under the name
/// `<name>.rank_0003`, with a note of which rows they are.
struct TrainingState {
  std::vector<Parameter> tensors;  // parameters, buffers, optimizer state: read when saving, filled when loading
  Job job;
  Fields trainer;
};

/// Saves on all ranks, or on none: when one rank cannot write, the step is abandoned everywhere, the reason is told
/// once as a warning, and the result is false. Older checkpoints stay then. Collective.
bool save_checkpoint(CheckpointStore& store, int64_t step, const TrainingState& state, comm::ProcessGroup& group);

struct Restored {
  int64_t step = 0;
  Fields trainer;
};

/// Fills `state.tensors` from the newest whole checkpoint of this job, whatever number of ranks wrote it; nothing when
/// there is none. Each checkpoint passed over is told in one warning (rank 0). Collective.
std::optional<Restored> load_checkpoint(const CheckpointStore& store, const TrainingState& state,
                                        std::optional<int64_t> newest, comm::ProcessGroup& group);

/// Rank 0's text on all ranks. Collective.
std::string broadcast_text(std::string text, comm::ProcessGroup& group);

}  // namespace tandem::train
