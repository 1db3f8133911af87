#pragma once
#include "tandem/data/loader.h"

namespace tandem::train {

/// Call loader.start() and loader.next(); the batches' memory counts as buffers.
void start_epoch(data::Loader& loader, int64_t epoch, int64_t first_batch = 0);
bool next_batch(data::Loader& loader, data::Batch& batch);

}  // namespace tandem::train
