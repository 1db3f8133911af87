#include "tandem/pipeline/schedules/rank_list.h"

namespace tandem::pipeline {

/// All forwards, then all backwards: each rank holds all micro-batches.
///
///   rank 0  F0 F1 F2 .  .  .  B0 B0 B1 B1 B2 B2
///   rank 1     F0 F1 F2 B0 B0 B1 B1 B2 B2
///
/// A divided classifier is one phase of all ranks between them.
///
/// Source: Huang et al. 2019, GPipe (arXiv:1811.06965).
Program make_gpipe(const ScheduleSize& size) {
  Program program{.micro_batches = size.micro_batches, .rank_of = linear_stages(size.ranks, 1)};
  for (int rank = 0; rank < size.ranks; ++rank) {
    RankList list(size.micro_batches);
    for (int i = 0; i < size.micro_batches; ++i) list.add(What::forward, rank);
    for (int i = 0; size.head && i < size.micro_batches; ++i) {
      list.add(What::scores, rank);
      list.add(What::class_gradient, rank);
    }
    for (int i = 0; i < size.micro_batches; ++i) list.add(What::backward, rank);
    program.lists.push_back(list.take());
  }
  return program;
}

Program make_inference(const ScheduleSize& size) {
  return inference_program(linear_stages(size.ranks, 1), size.micro_batches);
}

}  // namespace tandem::pipeline
