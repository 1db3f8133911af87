#pragma once
#include <span>

#include "tandem/classifier/softmax_loss.h"

namespace tandem::classifier {

/// How a batch and the classes are cut into shards, whatever the number of ranks: `shards` parts of the classes
/// (split_sizes), of which each rank holds shards / ranks consecutive ones.
struct ShardOrder {
  int64_t shards = 1;   // a multiple of the number of ranks
  int64_t classes = 0;  // over all ranks
};

/// The classes of each rank, in rank order.
std::vector<int64_t> ordered_counts(const ShardOrder& order, int ranks);

/// The loss of sharded_softmax_loss() with the same bits for every number of ranks: each rank brings one shard of a
/// batch; each pair of a shard of the batch and a shard of the classes is worked on alone, and sums run over the shards
/// in their order.
///
///                      class shard 0   1   2   3
///   batch shard 0                ■──▶■──▶■──▶■       row sums, and the features' gradient
///               1                ■   ■   ■   ■
///               2                ▼   ▼   ▼   ▼       the weight's gradient
///
///   features  [n_r, D]     this rank's rows, the shard of the batch
///   weight    [C_local, D] this rank's class shards
///   targets   [n_r]        int64 ids over all ranks; -1 leaves the row out
///   sizes     n_r of every rank
///   returns   [ranks]      the mean loss of each rank's rows, equal on all ranks
///
/// Backward adds the weight's gradient to weight.grad() itself, shard by shard, so that it also goes on in order from
/// one call to the next; the weight must require a gradient, and must be no function of other tensors. Besides what
/// sharded_softmax_loss() sends, backward sends shards / ranks times as many bytes of features' gradients. Collective,
/// and so is backward. No samples of classes, no update by rows. Throws as sharded_softmax_loss().
Tensor ordered_softmax_loss(const Tensor& features, const Tensor& weight, const Tensor& targets,
                            std::span<const int64_t> sizes, const ShardOrder& order, const Scoring& scoring,
                            comm::ProcessGroup& group, const BlockOptions& blocks = {});

}  // namespace tandem::classifier
