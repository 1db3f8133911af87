#pragma once
#include <vector>

#include "tandem/base/category.h"
#include "tandem/classifier/class_sharded_head.h"

namespace tandem::classifier {

/// What decides how much a head needs on one rank.
struct HeadLoad {
  int64_t own_classes = 0;  // of this rank
  int64_t samples = 0;      // of the global batch
  int ranks = 1;
  bool is_root = false;  // rank 0, of which the naive form asks more
  int threads = 1;       // that this rank computes with
  bool steps_in_backward = false;
  int64_t num_states = 1;   // tensors of the weight's size that the optimizer keeps: 0, 1, 2
  bool moves_late = false;  // see train::Optimizer::move_all_rows()
};

/// Bytes of one rank, by category, at the moment of a training step when a head of these options has most of them: in
/// backward, while its blocks are worked on. Parameters, gradients, optimizer state and communication are exact,
/// activations but for some numbers a row. Of sampled classes the expected number counts.
CategoryBytes head_memory(const HeadOptions& options, const HeadLoad& load);

/// Numbers of sampled classes that a step may score on one rank (draws_of()), of which one needs most memory. More
/// classes need more, but for those with which the blocks become one more, and smaller.
std::vector<int64_t> largest_draws(const HeadOptions& options, const HeadLoad& load);

}  // namespace tandem::classifier
