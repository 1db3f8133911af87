#pragma once
#include <cstdint>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/evaluation/samples.h"

namespace tandem::evaluation {

struct IdentificationOptions {
  std::vector<int64_t> top = {1, 5, 10};    // closed set
  std::vector<double> fpirs = {0.01, 0.1};  // open set: the false positive rates wanted, 0..1
  bool normalise = true;                    // similarity: cosine, or the inner product
  int64_t block_bytes = 8 << 20;            // of similarities that exist at a time
};

struct IdentificationScores {
  std::vector<double> top;        // share of mated probes whose mate is among the first top[i]; 0 without any
  std::vector<double> tpir;       // share of mated probes that are found, at each of fpirs
  std::vector<double> threshold;  // for each of fpirs; -inf without non-mated probes
  int64_t num_mated = 0, num_non_mated = 0;
};

/// 1:N search of probes in a gallery spread over the ranks. Equal on all ranks; cameras count for nothing.
///
/// A probe whose identity is in the gallery is mated; its mate is its most similar entry of that identity. Gallery
/// entries of identity -1 are left out, probes of identity -1 are non-mated.
/// Closed set: places as in retrieve(), ties in the gallery's global order, further entries of the same identity in no
/// place. Open set, as IJB's: the threshold for rate f is number max(floor(n f) - 1, 0) of the n non-mated probes'
/// highest similarities, falling; a mated probe is found when its mate is above the threshold and above every entry
/// of another identity.
///
/// Collective. Memory a rank: as retrieve(), and 24 bytes a probe. Throws c10::TypeError and c10::ValueError.
/// Source: Maze et al. 2018, IARPA Janus Benchmark C; InsightFace, recognition/_evaluation_/ijb/ijb_1n.py.
IdentificationScores identify(const Samples& probe, const Samples& gallery, const IdentificationOptions& options,
                              comm::ProcessGroup& group);

/// IJB gives two galleries; its scores are the averages of two searches, each with thresholds of its own. Thresholds
/// are averaged too, counts added. Throws c10::ValueError when the two were asked for different numbers of scores.
IdentificationScores mean_of(const IdentificationScores& a, const IdentificationScores& b);

}  // namespace tandem::evaluation
