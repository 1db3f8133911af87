#include "tandem/base/error.h"
#include "tandem/pipeline/schedules/rank_list.h"

namespace tandem::pipeline {
namespace {

/// The chunk of the n-th forward of a rank: `ranks` micro-batches pass through a chunk, then through the next.
int chunk_of(int n, const ScheduleSize& size) { return n / size.ranks % size.chunks; }

}  // namespace

/// One forward and one backward in turn, with several stages a rank: a rank comes to work after a part of a stage's
/// time, and the bubble is divided by the chunks; there are as many times more messages.
///
///   rank 0  F0 F1 F0' F1' .   F2 B0' ...      2 ranks, 2 chunks: stages 0 and 2
///   rank 1     F0 F1  F0' B0' F1' ...         stages 1 and 3
///
/// Source: Narayanan et al. 2021, Megatron-LM, section 2.2 (arXiv:2104.04473).
Program make_interleaved(const ScheduleSize& size) {
  const int ranks = size.ranks, micro_batches = size.micro_batches, chunks = size.chunks;
  if (micro_batches % ranks != 0) {
    throw SettingsError("micro_batches is " + std::to_string(micro_batches) + " with schedule interleaved and " +
                            std::to_string(ranks) + " ranks, wanted a multiple of them",
                        "use another schedule, or as many micro-batches");
  }
  Program program{.micro_batches = micro_batches, .rank_of = linear_stages(ranks, chunks)};
  const int all = micro_batches * chunks;
  for (int rank = 0; rank < ranks; ++rank) {
    RankList list(micro_batches);
    int forward = 0;
    const auto add_forward = [&] {
      if (forward < all) list.add(What::forward, chunk_of(forward, size) * ranks + rank);
      ++forward;
    };
    const int ahead = 2 * (ranks - rank - 1) + (chunks - 1) * ranks;
    for (int i = 0; i < ahead; ++i) add_forward();
    for (int backward = 0; backward < all; ++backward) {
      add_forward();
      list.add(What::backward, (chunks - 1 - chunk_of(backward, size)) * ranks + rank);
    }
    program.lists.push_back(list.take());
  }
  return program;
}

}  // namespace tandem::pipeline
