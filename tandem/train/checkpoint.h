#pragma once
#include <functional>
#include <optional>
#include <string>

#include "tandem/base/error.h"
#include "tandem/comm/process_group.h"
#include "tandem/train/checkpoint_reader.h"
#include "tandem/train/checkpoint_store.h"
#include "tandem/train/model_card.h"
#include "tandem/train/parameter.h"

namespace tandem::train {

/// Everything that a run needs to resume.
///
/// Each rank lists what it holds; the names may differ between ranks, as between the stages of a pipeline. The ranks
/// together hold every part of every listed tensor. A part that several ranks hold is stored once, in the file of the
/// rank whose copy counts (Placement::counts_on); a part of a split tensor under a name such as `<name>.rank_0003`,
/// with a note on which part it is.
struct TrainingState {
  std::vector<Parameter> tensors;  // parameters, buffers, optimizer state; loading fills them
  storage::Identity identity;      // of the job
  storage::Fields trainer;
  ModelCard card;  // to be saved; only rank 0's counts
};

/// Saves a checkpoint on all ranks, or on none. If a rank cannot write, the checkpoint is abandoned on all ranks, the
/// reason is logged once as a warning, older checkpoints stay, and the result is false. Writing may take longer than
/// the group's timeout (comm::JointWork). Collective.
bool save_checkpoint(CheckpointStore& store, int64_t step, const TrainingState& state, comm::ProcessGroup& group);

struct Restored {
  int64_t step = 0;
  storage::Fields trainer;
};

/// Reads what this rank needs from a checkpoint. Must not be collective. Throws as CheckpointReader does if the
/// checkpoint cannot be used.
using CheckpointRead = std::function<void(const CheckpointReader& checkpoint)>;

/// Returns the newest checkpoint of `job`, up to step `newest`, that every rank can read, or nullopt if there is none.
/// Rank 0 looks for candidates by manifest and file sizes. All ranks call `read` for each candidate, and accept or skip
/// it together. Rank 0 logs a warning for each checkpoint that is skipped. Reading may take longer than the group's
/// timeout (comm::JointWork). Collective.
std::optional<storage::Manifest> find_checkpoint(const CheckpointStore& store, const storage::Identity& job,
                                                 std::optional<int64_t> newest, const CheckpointRead& read,
                                                 comm::ProcessGroup& group);

/// The same for the one checkpoint of step `step`, which the user has named: no other takes its place. Throws DataError
/// on all ranks if a rank cannot read it. Collective.
storage::Manifest read_checkpoint(const CheckpointStore& store, const storage::Identity& job, int64_t step,
                                  const CheckpointRead& read, comm::ProcessGroup& group);

/// The error of a checkpoint that the user has named, which has this fault.
DataError fault_of_named(const std::filesystem::path& checkpoint, const std::string& fault);

/// Fills `state.tensors` from the newest complete and finite checkpoint of this job, found as find_checkpoint() does.
/// Any number of ranks, with any placements, may have written it. Each rank reads the parts that it needs straight into
/// its tensors; together the ranks read, and verify, every byte. Returns nullopt if there is no such checkpoint; the
/// content of the tensors is then undefined, since a damaged checkpoint may have been read. Collective.
std::optional<Restored> load_checkpoint(const CheckpointStore& store, const TrainingState& state,
                                        std::optional<int64_t> newest, comm::ProcessGroup& group);

}  // namespace tandem::train
