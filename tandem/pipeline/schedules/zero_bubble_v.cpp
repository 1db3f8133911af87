#include "tandem/pipeline/schedules/rank_list.h"

namespace tandem::pipeline {
namespace {

std::vector<Action> list_of(int rank, int ranks, int micro_batches) {
  const int down = rank, up = 2 * ranks - 1 - rank;
  RankList list(micro_batches);
  const auto forward = [&](int stage) { list.add(What::forward, stage); };
  const auto backward = [&](int stage) {
    list.add(What::input_gradient, stage);
    list.add(What::weight_gradient, stage);
  };
  for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) forward(down);
  for (int i = 0; i < rank; ++i) {
    forward(up);
    forward(down);
  }
  for (int i = 0; i < ranks - rank; ++i) {
    forward(up);
    backward(up);
  }
  while (list.count(What::forward, up) < micro_batches) {
    forward(down);
    backward(down);
    forward(up);
    backward(up);
  }
  for (int i = 0; i < rank; ++i) {  // what the ranks before wait for goes first
    list.add(What::input_gradient, down);
    list.add(What::input_gradient, up);
  }
  for (int i = 0; i < ranks - rank; ++i) backward(down);
  for (const int stage : {up, down}) {
    for (int i = 0; i < micro_batches; ++i) list.add(What::weight_gradient, stage);
  }
  return list.take();
}

}  // namespace

/// Two stages a rank, down the ranks and up again, so that the first rank also has the last stage: the first backward
/// begins there at once. With forward, input gradient and weight gradient of the same time no rank ever waits between
/// its first action and its last, and each holds p micro-batches.
///
///   rank 0  F0 F1 F2 F0' B0' W0' F1' B1' W1' F3 ...      2 ranks: stages 0 and 3
///   rank 1     F0 F0' F1 F1' B0' W0' ...                 stages 1 and 2
///
/// Source: Qi et al. 2024, Pipeline Parallelism with Controllable Memory, section 4 (arXiv:2405.15362).
Program make_zero_bubble_v(const ScheduleSize& size) {
  Program program{.micro_batches = size.micro_batches, .rank_of = v_stages(size.ranks)};
  const int enough = std::max(size.micro_batches, 2 * size.ranks - 1);  // that each phase has its part
  for (int rank = 0; rank < size.ranks; ++rank) {
    auto list = list_of(rank, size.ranks, enough);
    std::erase_if(list, [&](const Action& action) { return action.micro_batch >= size.micro_batches; });
    program.lists.push_back(std::move(list));
  }
  return program;
}

}  // namespace tandem::pipeline
