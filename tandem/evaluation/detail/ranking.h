#pragma once
#include <vector>

#include "tandem/evaluation/detail/rows.h"

namespace tandem::evaluation::detail {

struct Match {
  int64_t query, key;
  double similarity;
};

/// Where a block's matches stand, equal on all ranks. Matches of query i: first[i] .. first[i + 1], best first; ties in
/// the order of their keys. `before[m]`: how many entries that are no match stand before match m.
struct Ranking {
  std::vector<int64_t> first;
  std::vector<Match> matches;
  std::vector<int64_t> before;
  std::vector<double> best_other;  // of each query, -inf without any; empty unless asked for
};

/// Ranks a gallery that is spread over the ranks. An entry of the query's identity is a match, unless it is of the same
/// camera, where cameras count; that one and nobody's entries (-1) are junk, in no place at all.
class GalleryRanker {
 public:
  /// Memory: 16 bytes an own entry.
  GalleryRanker(Rows gallery, bool use_cameras, bool find_best_other, int64_t block_bytes);

  /// Collective; `queries` are the same on all ranks. Wire: 24 bytes a match, 8 a match and a query, 8 a query for
  /// the best other. Memory: a block of products, 40 bytes a match of the block's queries.
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
