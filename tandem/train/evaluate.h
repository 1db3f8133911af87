#pragma once
#include <span>

#include "tandem/comm/process_group.h"
#include "tandem/data/loader.h"
#include "tandem/train/step.h"
#include "tandem/train/task.h"

namespace tandem::train {

/// The scores of evaluate(), in its order, with the value 0.
std::span<const Score> metrics();

/// Evaluates a task on all samples of a loader (epoch 0): top1 and top5 (fractions of 1) and loss (mean over the
/// samples), equal on all ranks. With fewer than five classes, top5 counts all of them. `data`: the ranks that share a
/// batch. Collective. `tick` is called at the start and after each batch, `answered` on all ranks for each.
/// Throws c10::ValueError if num_classes is not positive.
Scores evaluate(Task& task, data::Loader& loader, int64_t num_classes, comm::ProcessGroup& data, const Tick& tick = {},
                const Answered& answered = {});

}  // namespace tandem::train
