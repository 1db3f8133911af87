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

}  // namespace tandem::train
