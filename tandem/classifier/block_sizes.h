#pragma once
#include <cstdint>
#include <vector>

#include "tandem/classifier/class_sharded_head.h"

namespace tandem::classifier {

/// Numbers of sampled classes that a step may score on one rank of `own_classes` (draws_of()), of which one needs most
/// memory. More classes need more, but for those with which the blocks become one more, and smaller. `samples`: of the
/// global batch; `threads`: that the rank computes with.
std::vector<int64_t> largest_draws(const HeadOptions& options, int64_t own_classes, int64_t samples, int threads);

/// The largest number of scored classes of which a rank keeps all scores of so many samples for backward.
int64_t most_kept(const HeadOptions& options, int64_t samples);

/// The most classes of a block of so many samples.
int64_t block_rows(const HeadOptions& options, int64_t samples);

/// The options with which fewer samples of fewer features are scored in the same blocks of classes as `samples` of
/// options.dim, with the scores of as many classes kept.
HeadOptions in_same_blocks(HeadOptions options, int64_t samples, int64_t fewer_samples, int64_t fewer_features);

}  // namespace tandem::classifier
