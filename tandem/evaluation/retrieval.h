#pragma once
#include <cstdint>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/evaluation/samples.h"

namespace tandem::evaluation {

struct RetrievalOptions {
  int64_t max_rank = 10;          // cmc[0 .. max_rank - 1]
  bool normalise = true;          // true: cosine similarity; false: inner product
  int64_t block_bytes = 8 << 20;  // of similarities in memory at a time
};

/// Means over the valid queries; 0 if there is none.
struct RetrievalScores {
  double mean_ap = 0;            // precision at each hit, averaged (fast-reid and most papers since)
  double mean_ap_trapezoid = 0;  // half the sum of the precisions at and before each hit (Market-1501's MATLAB code)
  double mean_inp = 0;           // hits / place of the last hit
  std::vector<double> cmc;       // cmc[k - 1]: share of queries with a hit among the first k
  int64_t num_queries = 0, num_valid = 0;  // all; those with a match in the gallery
};

/// Measures how well queries find their identity in a gallery, by the protocol of Market-1501. The result is equal on
/// all ranks.
///
/// For each query, gallery entries of the same identity are hits. Entries of the same identity and the same camera (if
/// cameras are given) and entries of identity -1 are junk: they have no place in the ranking. Identity 0 is not
/// special, so background boxes are misses. Queries without a hit are left out. The ranking is a stable sort by falling
/// similarity over the gallery in its global order: of two equally similar entries the earlier comes first.
///
/// Exact, without a distance matrix: the similarities of each query's hits are computed first and sent to all ranks;
/// then each rank goes through its part of the gallery block by block and counts the entries before each hit.
/// Collective: must be called on all ranks. Memory per rank: block_bytes, the features of 256 queries, 56 bytes per own
/// sample, 40 bytes per hit of 256 queries. Wire: the queries, 24 bytes per hit, and a sum of 8 bytes per hit and
/// query.
/// Throws c10::TypeError and c10::ValueError: on all ranks if types or shapes differ between ranks; only on the rank
/// concerned if its own shapes, types or identities are wrong or its features are not finite. Source: Zheng et al.
/// 2015, Scalable Person Re-identification, section 5; mINP: Ye et al. 2021 (arXiv:2001.04193).
RetrievalScores retrieve(const Samples& query, const Samples& gallery, const RetrievalOptions& options,
                         comm::ProcessGroup& group);

}  // namespace tandem::evaluation
