#pragma once
#include <functional>
#include <span>

#include "tandem/comm/process_group.h"
#include "tandem/data/loader.h"
#include "tandem/train/step.h"
#include "tandem/train/task.h"

namespace tandem::train {

/// Is given this rank's part of each batch, what the task answered, and the samples of each rank that shares the batch.
using Answered = std::function<void(const data::Batch& batch, const Ranking& best, std::span<const int64_t> sizes)>;

/// The scores of evaluate(), in its order, with the value 0.
std::span<const Score> metrics();

/// Evaluates a task on all samples of a loader (epoch 0): top1 and top5 (fractions of 1) and loss (mean over the
/// samples), equal on all ranks. With fewer than five classes, top5 counts all of them. `data`: the ranks that share a
/// batch. Collective. `tick` is called at the start and after each batch, `answered` on all ranks for each.
/// Throws c10::ValueError if num_classes is not positive.
Scores evaluate(Task& task, data::Loader& loader, int64_t num_classes, comm::ProcessGroup& data, const Tick& tick = {},
                const Answered& answered = {});

}  // namespace tandem::train
