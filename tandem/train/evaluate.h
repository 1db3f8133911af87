#pragma once
#include "tandem/comm/process_group.h"
#include "tandem/data/loader.h"
#include "tandem/train/step.h"
#include "tandem/train/task.h"

namespace tandem::train {

/// Evaluates a task on all samples of a loader (epoch 0): top1 and top5 (fractions of 1) and loss (mean over the
/// samples), equal on all ranks. With fewer than five classes, top5 counts all of them. `data`: the ranks that share a
/// batch. Collective. `tick` is called at the start and after each batch.
Scores evaluate(Task& task, data::Loader& loader, int64_t num_classes, comm::ProcessGroup& data, const Tick& tick = {});

}  // namespace tandem::train
