#pragma once
#include <cstdint>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/evaluation/samples.h"

namespace tandem::evaluation {

struct AllPairsOptions {
  std::vector<double> fars = {1e-6, 1e-5, 1e-4, 1e-3};  // 0..1
  bool normalise = true;                                // true: cosine similarity; false: inner product
  int64_t num_bins = 1 << 16;                           // of the histogram of different pairs
  int64_t block_bytes = 8 << 20;                        // of similarities in memory at a time
};

struct AllPairsScores {
  std::vector<double> tar;        // true accept rate at each of fars; 0 without same pairs
  std::vector<double> threshold;  // for each: pairs ABOVE it are accepted; -inf: all
  int64_t num_same = 0, num_different = 0;
};

/// 1:1 comparison of every sample with every other (n (n - 1) / 2 pairs), spread over the ranks. The result is equal on
/// all ranks.
///
/// The threshold for rate f is the similarity of the first different pair that must be rejected. This gives the
/// greatest true accept rate whose false accept rate is not above f (FarPoint::at_most). Samples of identity -1 are
/// left out; cameras are ignored.
///
/// Exact, without storing the similarity of each pair: the first pass makes a histogram of the different pairs. The
/// second computes, by the definition, the similarities within rounding of the bins that hold the thresholds, and keeps
/// a count for each value found there. Each pass takes one matrix product per pair of blocks.
/// Collective: must be called on all ranks. Memory per rank: block_bytes, the features of 256 queries, 40 bytes per own
/// sample, 8 bytes per bin, 100 bytes per value near a threshold. Wire: the features twice, the histogram, 24 bytes per
/// value near a threshold.
/// Throws c10::TypeError, c10::ValueError.
AllPairsScores compare_all_pairs(const Samples& samples, const AllPairsOptions& options, comm::ProcessGroup& group);

}  // namespace tandem::evaluation
