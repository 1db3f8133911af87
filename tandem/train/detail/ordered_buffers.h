#pragma once
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/train/parameter.h"

namespace tandem::train::detail {

/// The buffers of a step whose batch is cut into shards, with the same bits for every number of ranks. Each shard's
/// forward moves them from what they were before the step; afterwards they are the mean of what the shards have made of
/// them, weighted with the shards' samples and summed in the order of the shards. Buffers that are no floating-point
/// numbers, such as counts of batches, are what the first shard has made of them.
///
///   before_step ─ forward of shard 0 ─ end_shard(n0) ─ forward of shard 1 ─ end_shard(n1) ─ ... ─ end_step
///
/// Memory: two copies of the buffers, and of their floating-point numbers one in float64 for each shard of this rank;
/// in end_step() one for each shard of the batch.
class OrderedBuffers {
 public:
  /// `shards`: of this rank, the same on all ranks.
  OrderedBuffers(std::vector<Parameter> buffers, int64_t shards);

  void before_step();

  /// `samples`: of the shard. Restores the buffers.
  void end_shard(int64_t samples);

  /// After the last shard; a step may be left before. Collective.
  void end_step(comm::ProcessGroup& group);

 private:
  std::vector<Parameter> buffers_;
  std::vector<Tensor> before_, first_;  // copies: before the step, after its first shard
  Tensor shards_;                       // [shards, numbers + 1]: the last one is the number of samples
  int64_t ended_ = 0;
};

}  // namespace tandem::train::detail
