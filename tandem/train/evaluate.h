#pragma once
#include <functional>

#include "tandem/comm/process_group.h"
#include "tandem/data/loader.h"
#include "tandem/train/task.h"

namespace tandem::train {

struct Scores {
  double top1 = 0, top5 = 0;  // parts of 1
  double loss = 0;            // mean over the samples
  int64_t samples = 0;
};

/// loader.start() and loader.next() with the batches' memory booked as buffers.
void start_epoch(data::Loader& loader, int64_t epoch, int64_t first_batch = 0);
bool next_batch(data::Loader& loader, data::Batch& batch);

/// Scores of a task on all of a loader's samples (epoch 0), equal on all ranks. With fewer than five classes top5
/// counts all of them. Collective. `tick(done, total)` is called after each batch.
Scores evaluate(Task& task, data::Loader& loader, int64_t num_classes, comm::ProcessGroup& group,
                const std::function<void(int64_t, int64_t)>& tick = {});

}  // namespace tandem::train
