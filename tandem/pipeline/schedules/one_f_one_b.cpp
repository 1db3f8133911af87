#include "tandem/pipeline/schedules/rank_list.h"

namespace tandem::pipeline {

/// Each rank runs as many forwards as it needs to keep the later ones busy, then a forward and a backward in turn: it
/// holds min(m, p - r) micro-batches.
///
///   rank 0  F0 F1 .  .  B0 B0 F2 B1 B1 ...
///   rank 1     F0 B0 B0 F1 B1 B1 F2 ...
///
/// With a divided classifier one more, while all ranks score: min(m, p - r + 1).
///
/// Source: Narayanan et al. 2019, PipeDream (arXiv:1806.03377), with the flush of its 2021 sequel (arXiv:2006.09503).
Program make_one_f_one_b(const ScheduleSize& size) {
  Program program{.micro_batches = size.micro_batches, .rank_of = linear_stages(size.ranks, 1)};
  for (int rank = 0; rank < size.ranks; ++rank) {
    RankList list(size.micro_batches);
    const int ahead = size.ranks - rank - 1 + (size.head ? 1 : 0);
    for (int i = 0; i < ahead; ++i) list.add(What::forward, rank);
    for (int i = 0; i < size.micro_batches; ++i) {
      list.add(What::forward, rank);
      list.add(What::backward, rank);
    }
    program.lists.push_back(list.take());
  }
  return program;
}

}  // namespace tandem::pipeline
