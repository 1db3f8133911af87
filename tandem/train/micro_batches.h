#pragma once
#include <vector>

#include "tandem/base/context.h"
#include "tandem/comm/process_group.h"
#include "tandem/data/dataset.h"
#include "tandem/parallel/gradient_sync.h"

namespace tandem::train {

/// A part of a global batch.
struct BatchPart {
  data::Batch batch;           // this rank's samples of it; views
  std::vector<int64_t> sizes;  // samples of each rank
  std::vector<double> shares;  // of the global batch's samples: of each number of the part's loss
  parallel::MicroBatch place;
};

/// The derivative of the step's loss, times `scale`, by the numbers of the part's; undefined: 1.
Tensor start_of_backward(const Tensor& loss, const BatchPart& part, double scale);

/// That of the calling thread, or another, for the part's samples.
Context context_of(const BatchPart& part, Context around = current_context());

/// Cuts each rank's part of a batch into `parts` parts (split_sizes); leaves out parts that are empty on all ranks, but
/// not the first. `sizes`: samples of each rank. Not collective: each rank gets the same sizes.
std::vector<BatchPart> cut(const data::Batch& batch, int64_t parts, const std::vector<int64_t>& sizes, int rank);

/// Cuts a batch into `shards` parts (split_sizes), whatever the number of ranks: part i of this rank, which has
/// shards / ranks of them, is shard i * ranks + rank. `batch`: this rank's shards one after the other, as a loader with
/// LoaderOptions::shards gives them. Each loss has a number for each rank. Not collective.
std::vector<BatchPart> cut_shards(const data::Batch& batch, int64_t shards, const comm::ProcessGroup& data);

}  // namespace tandem::train
