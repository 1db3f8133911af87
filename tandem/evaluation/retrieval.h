#pragma once
#include <cstdint>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/evaluation/samples.h"

namespace tandem::evaluation {

struct RetrievalOptions {
  int64_t max_rank = 10;          // cmc[0 .. max_rank - 1]
  bool normalise = true;          // similarity: cosine, or the inner product
  int64_t block_bytes = 8 << 20;  // of similarities that exist at a time
};

/// Means over the valid queries; 0 where there is none.
struct RetrievalScores {
  double mean_ap = 0;            // precision at each hit, averaged (fast-reid and most papers since)
  double mean_ap_trapezoid = 0;  // half the sum of the precisions at and before each hit (Market-1501's MATLAB code)
  double mean_inp = 0;           // hits / place of the last hit
  std::vector<double> cmc;       // cmc[k - 1]: share of queries with a hit among the first k
  int64_t num_queries = 0, num_valid = 0;  // all; those with a match in the gallery
};

/// How well queries find their identity in a gallery, by the protocol of Market-1501. Equal on all ranks.
///
/// For each query, gallery entries of the same identity are hits; of the same identity and the same camera (where
/// cameras are given), or of identity -1, they are junk and have no place. Identity 0 is one like any other, so that
/// background boxes are misses. Queries without a hit are left out. Places are those of a stable sort by falling
/// similarity over the gallery in its global order: of two equally similar entries the earlier comes first.
///
/// Exact, without a matrix of distances: the similarities of each query's hits are worked out first and told to all
/// ranks; then each rank goes over its own gallery block by block and counts what stands before each hit.
/// Collective. Memory a rank: block_bytes, 256 queries' features, 56 bytes an own sample, 40 bytes a hit of 256
/// queries. Wire: the queries, 24 bytes a hit, and 8 bytes a hit and query to add up.
/// Throws c10::TypeError and c10::ValueError: on all ranks when their types or shapes differ, on the rank that gives
/// them for its own wrong shapes, types, identities and features that are not finite. Source: Zheng et al. 2015,
/// Scalable Person Re-identification, section 5; mINP: Ye et al. 2021 (arXiv:2001.04193).
RetrievalScores retrieve(const Samples& query, const Samples& gallery, const RetrievalOptions& options,
                         comm::ProcessGroup& group);

}  // namespace tandem::evaluation
