#pragma once
#include <functional>

#include "tandem/comm/process_group.h"
#include "tandem/data/loader.h"
#include "tandem/train/task.h"

namespace tandem::train {

struct Scores {
  double top1 = 0, top5 = 0;  // fractions of 1
  double loss = 0;            // mean over the samples
  int64_t samples = 0;
};

/// Call loader.start() and loader.next(); the batches' memory counts as buffers.
void start_epoch(data::Loader& loader, int64_t epoch, int64_t first_batch = 0);
bool next_batch(data::Loader& loader, data::Batch& batch);

/// Evaluates a task on all samples of a loader (epoch 0). The scores are equal on all ranks. With fewer than five
/// classes, top5 counts all of them. Collective. `tick(done, total)` is called at the start and after each batch.
Scores evaluate(Task& task, data::Loader& loader, int64_t num_classes, comm::ProcessGroup& group,
                const std::function<void(int64_t, int64_t)>& tick = {});

}  // namespace tandem::train
