#pragma once
#include <c10/core/ScalarType.h>

#include "tandem/classifier/softmax_loss.h"

namespace tandem::classifier::detail {

/// How a loss is cut into blocks: what OwnSoftmax does.
struct BlockPlan {
  int64_t columns = 0;        // of a block of products: the samples, padded
  int lanes = 1;              // threads that work on a block each
  int64_t block = 0;          // classes of a block
  int64_t most = 0;           // that a block may have
  int64_t num_kept = 0;       // first classes whose products, or E, stay until backward
  at::ScalarType products{};  // their type
};

/// For `classes` scored ones and up to `threads` lanes, on a CPU or elsewhere.
BlockPlan plan_blocks(const BlockOptions& options, const Scoring& scoring, int64_t samples, int64_t dim,
                      int64_t classes, at::ScalarType type, int threads, bool is_on_cpu);

}  // namespace tandem::classifier::detail
