#pragma once
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/data/dataset.h"
#include "tandem/parallel/gradient_sync.h"

namespace tandem::train::detail {

/// A part of a global batch.
struct BatchPart {
  data::Batch batch;           // this rank's samples of it; views
  std::vector<int64_t> sizes;  // samples of each rank
  double share = 1;            // of the global batch's samples
  parallel::MicroBatch place;
};

/// Cuts each rank's part of a batch into `parts` parts (split_sizes); leaves out parts that are empty on all ranks, but
/// not the first. Not collective: each rank gets the same sizes.
std::vector<BatchPart> cut(const data::Batch& batch, int64_t parts, const comm::ProcessGroup& data);

}  // namespace tandem::train::detail
