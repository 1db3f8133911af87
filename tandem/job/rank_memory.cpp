#include "tandem/job/rank_memory.h"

#include <ATen/ATen.h>

#include <numeric>

#include "tandem/base/context.h"
#include "tandem/comm/split.h"
#include "tandem/job/parts.h"
#include "tandem/memory/meter.h"
#include "tandem/train/step_memory.h"

namespace tandem::job {
namespace {

/// Images of zeros, and targets that are classes of this rank.
data::Batch synthetic_batch(const Job& job, const DataShape& shape, int rank, const std::vector<int64_t>& counts) {
  const int64_t own = counts[rank], first = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  const int64_t samples = comm::split_sizes(job.training.batch, job.parallel.ranks)[rank];
  data::Batch batch;
  batch.images = at::zeros({samples, shape.image[0], shape.image[1], shape.image[2]});
  batch.labels = own > 0 ? at::arange(samples).remainder_(own).add_(first) : at::full({samples}, -1, at::kLong);
  batch.global_size = job.training.batch;
  return batch;
}

}  // namespace

memory::Composition rehearse_rank(const Job& job, const DataShape& shape, int rank, const std::vector<int64_t>& counts,
                                  int64_t batches) {
  const memory::ProbeScope aside;
  const auto batch = synthetic_batch(job, shape, rank, counts);
  const memory::ProbeScope probe;
  const auto group = comm::make_rehearsal_group(rank, job.parallel.ranks);
  const auto task = make_task(job, shape, counts, *group);
  const auto in_flight = data::loader_memory(training_loader_options(job, rank), shape.image, batches);
  return train::rehearse_step(*task, trainer_options(job, batches), batch, in_flight, probe, *group);
}

}  // namespace tandem::job
