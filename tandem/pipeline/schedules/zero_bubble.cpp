#include "tandem/pipeline/schedules/rank_list.h"

namespace tandem::pipeline {
namespace {

/// One more forward while all ranks score the first micro-batch.
int for_head(const ScheduleSize& size) { return size.head ? 1 : 0; }

/// `ahead` forwards; then a forward and an input gradient in turn, with a weight gradient where more than `late` of
/// them wait.
std::vector<Action> split_list(int micro_batches, int stage, int ahead, int late) {
  RankList list(micro_batches);
  for (int i = 0; i < ahead; ++i) list.add(What::forward, stage);
  int done = 0;
  for (int i = 1; i <= micro_batches; ++i) {
    list.add(What::forward, stage);
    list.add(What::input_gradient, stage);
    if (i - done <= late && i < micro_batches) continue;
    list.add(What::weight_gradient, stage);
    ++done;
  }
  for (; done < micro_batches; ++done) list.add(What::weight_gradient, stage);
  return list.take();
}

}  // namespace

/// One forward and one backward in turn, but only the gradient of a stage's input is on the way to the rank before, and
/// weight gradients fill what would be a bubble at the end. A rank holds the graphs of p - r micro-batches.
///
///   rank 0  F0 F1 F2 F3 B0 W0 F4 B1 W1 ...       B: input gradient
///   rank 3           F0 B0 F1 B1 F2 B2 F3 B3 W0 ...
///
/// Source: Qi et al. 2023, Zero Bubble Pipeline Parallelism, section 2.1 (arXiv:2401.10241).
Program make_zero_bubble_h1(const ScheduleSize& size) {
  Program program{.micro_batches = size.micro_batches, .rank_of = linear_stages(size.ranks, 1)};
  for (int rank = 0; rank < size.ranks; ++rank) {
    program.lists.push_back(split_list(size.micro_batches, rank, size.ranks - rank - 1 + for_head(size), rank));
  }
  return program;
}

/// The same with more forwards at the beginning, so that no rank waits between its first action and its last. The ranks
/// end one after the other, as they began: the bubble is gone if the optimizer does not wait for all. Rank 0 holds
/// 2p - 1 micro-batches.
///
/// Source: the same, section 2.2.
Program make_zero_bubble_h2(const ScheduleSize& size) {
  Program program{.micro_batches = size.micro_batches, .rank_of = linear_stages(size.ranks, 1)};
  for (int rank = 0; rank < size.ranks; ++rank) {
    program.lists.push_back(
        split_list(size.micro_batches, rank, 2 * (size.ranks - rank - 1) + for_head(size), 2 * rank));
  }
  return program;
}

}  // namespace tandem::pipeline
