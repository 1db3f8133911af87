#pragma once
#include <cstdint>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/evaluation/samples.h"

namespace tandem::evaluation {

struct IdentificationOptions {
  std::vector<int64_t> top = {1, 5, 10};    // closed set
  std::vector<double> fpirs = {0.01, 0.1};  // open set: false positive rates, 0..1
  bool normalise = true;                    // true: cosine similarity; false: inner product
  int64_t block_bytes = 8 << 20;            // of similarities in memory at a time
};

struct IdentificationScores {
  std::vector<double> top;        // share of mated probes whose mate is among the first top[i]; 0 if none is mated
  std::vector<double> tpir;       // share of mated probes that are found, at each of fpirs
  std::vector<double> threshold;  // for each of fpirs; -inf without non-mated probes
  int64_t num_mated = 0, num_non_mated = 0;
};

/// 1:N search of probes in a gallery that is spread over the ranks. The result is equal on all ranks; cameras are
/// ignored.
///
/// A probe whose identity is in the gallery is mated; its mate is its most similar entry of that identity. Gallery
/// entries of identity -1 are left out, probes of identity -1 are non-mated.
/// Closed set: places are counted as in retrieve(), with ties in the gallery's global order; further entries of the
/// probe's identity have no place.
/// Open set, as in IJB: the n non-mated probes' highest similarities are put in falling order; the threshold for rate f
/// is number max(floor(n f) - 1, 0) of them, counted from 0. A mated probe is found if its mate is above the threshold
/// and above every entry of another identity.
///
/// Collective: must be called on all ranks. Memory per rank: as retrieve(), and 24 bytes a probe. Throws c10::TypeError
/// and c10::ValueError.
/// Source: Maze et al. 2018, IARPA Janus Benchmark C; InsightFace, recognition/_evaluation_/ijb/ijb_1n.py.
IdentificationScores identify(const Samples& probe, const Samples& gallery, const IdentificationOptions& options,
                              comm::ProcessGroup& group);

/// The mean of two searches, each with its own thresholds: IJB has two galleries. Scores and thresholds are averaged,
/// counts are added. Throws c10::ValueError if the two have different numbers of scores.
IdentificationScores mean_of(const IdentificationScores& a, const IdentificationScores& b);

}  // namespace tandem::evaluation
