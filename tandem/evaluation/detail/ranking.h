#pragma once
#include <vector>

#include "tandem/evaluation/detail/rows.h"

namespace tandem::evaluation::detail {

struct Match {
  int64_t query, key;
  double similarity;
};

/// The places of the matches of a block of queries, equal on all ranks. Query i has the matches from first[i] up to but
/// not including first[i + 1], best first, ties in the order of their keys. before[m]: number of entries before match m
/// that are not matches.
struct Ranking {
  std::vector<int64_t> first;
  std::vector<Match> matches;
  std::vector<int64_t> before;
  std::vector<double> best_other;  // best non-match of each query, -inf without any; empty unless requested
};

/// Ranks a gallery that is spread over the ranks. An entry of the query's identity is a match. If cameras are used, an
/// entry of the query's identity and camera is junk instead. Entries of identity -1 are junk too. Junk has no place in
/// the ranking.
class GalleryRanker {
 public:
  /// Memory: 16 bytes per own entry.
  GalleryRanker(Rows gallery, bool use_cameras, bool find_best_other, int64_t block_bytes);

  /// Collective; `queries` must be the same on all ranks. Wire: 24 bytes per match, 8 per match and query, 8 per query
  /// for the best non-match. Memory: a block of products, 40 bytes per match of the block's queries.
  Ranking rank(const Rows& queries, comm::ProcessGroup& group) const;

 private:
  std::vector<Match> own_matches(const Rows& queries) const;
  void count(const Rows& queries, const Ranking& ranking, int64_t* counts, double* best_other) const;

  Rows gallery_;
  bool use_cameras_, find_best_other_;
  int64_t block_bytes_;
  std::vector<std::pair<int64_t, int64_t>> rows_of_;  // identity, row; sorted
};

}  // namespace tandem::evaluation::detail
