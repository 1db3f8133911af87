#pragma once
#include "tandem/comm/process_group.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/rehearsal.h"
#include "tandem/train/trainer.h"

namespace tandem::train {

/// The memory of one rank's training steps, before any has run: makes what a Trainer makes, and rehearses the blocks of
/// the task (memory/rehearsal.h).
///
///   task     made in `probe`; its values and its optimizer's change
///   batch    of the rank's real size; not counted
///   batches  bytes of the batches that the rank will hold
///   group    the rank's, or a rehearsal group (comm::make_rehearsal_group)
///
/// Returns what is held between two steps, and at the peak of one. Memory: that of the optimizer and of one block.
/// Collective.
memory::Composition rehearse_step(Task& task, const TrainerOptions& options, const data::Batch& batch, int64_t batches,
                                  const memory::ProbeScope& probe, comm::ProcessGroup& group);

}  // namespace tandem::train
