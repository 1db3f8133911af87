#pragma once
#include "tandem/data/loader.h"
#include "tandem/train/task.h"

namespace tandem::train {

/// Call loader.start() and loader.next(); the batches' memory counts as buffers.
void start_epoch(data::Loader& loader, int64_t epoch, int64_t first_batch = 0);
bool next_batch(data::Loader& loader, data::Batch& batch);

/// All batches of a loader, from the first on. The loader must outlive the result.
Task::Batches all_batches(data::Loader& loader);

}  // namespace tandem::train
