#include "tandem/train/batches.h"

#include "tandem/base/context.h"

namespace tandem::train {

void start_epoch(data::Loader& loader, int64_t epoch, int64_t first_batch) {
  const CategoryScope scope(Category::buffers);
  loader.start(epoch, first_batch);
}

bool next_batch(data::Loader& loader, data::Batch& batch) {
  const CategoryScope scope(Category::buffers);
  return loader.next(batch);
}

Task::Batches all_batches(data::Loader& loader) {
  start_epoch(loader, 0);
  const auto next = [&loader] {
    data::Batch batch;
    TORCH_INTERNAL_ASSERT(next_batch(loader, batch), "the epoch has fewer batches than the loader says");
    return batch;
  };
  const auto sizes = [&loader](const data::Batch& batch) {
    return data::samples_of_ranks(loader.options(), batch.global_size);
  };
  return {loader.batches_per_epoch(), next, sizes};
}

}  // namespace tandem::train
