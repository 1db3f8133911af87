#include "tandem/evaluation/retrieval.h"

#include <ATen/ATen.h>

#include <numeric>

#include "tandem/evaluation/detail/blocks.h"
#include "tandem/evaluation/detail/checks.h"
#include "tandem/evaluation/detail/ranking.h"

namespace tandem::evaluation {
namespace {

/// Adds one query's scores. before[j]: how many misses stand before hit j.
void add_query(std::span<const int64_t> before, RetrievalScores& sums) {
  const int64_t hits = static_cast<int64_t>(before.size());
  double precisions = 0, trapezoids = 0;
  for (int64_t j = 0; j < hits; ++j) {
    const int64_t place = before[j] + j;  // from 0
    const double precision = double(j + 1) / double(place + 1);
    const double precision_before = place == 0 ? 1.0 : double(j) / double(place);
    precisions += precision;
    trapezoids += (precision_before + precision) / 2;
  }
  sums.mean_ap += precisions / double(hits);
  sums.mean_ap_trapezoid += trapezoids / double(hits);
  sums.mean_inp += double(hits) / double(before.back() + hits);
  for (int64_t k = before.front(); k < int64_t(sums.cmc.size()); ++k) ++sums.cmc[k];
  ++sums.num_valid;
}

void divide(RetrievalScores& sums) {
  const double count = double(std::max<int64_t>(1, sums.num_valid));
  for (double* sum : {&sums.mean_ap, &sums.mean_ap_trapezoid, &sums.mean_inp}) *sum /= count;
  for (double& share : sums.cmc) share /= count;
}

}  // namespace

RetrievalScores retrieve(const Samples& query, const Samples& gallery, const RetrievalOptions& options,
                         comm::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK_VALUE(options.max_rank >= 1, "retrieval: max_rank is ", options.max_rank, ", wanted 1 or more");
  detail::check_block_bytes("retrieval", options.block_bytes);
  detail::check_samples("query", query);
  detail::check_samples("gallery", gallery);
  const auto sizes = detail::exchange_sizes({query, gallery}, group);
  const int64_t first_key = std::accumulate(sizes[1].begin(), sizes[1].begin() + group.rank(), int64_t{0});
  const detail::GalleryRanker ranker(detail::make_rows("gallery", gallery, options.normalise, first_key, 1),
                                     query.camera.defined(), false, options.block_bytes);
  RetrievalScores scores;
  scores.cmc.assign(options.max_rank, 0.0);
  const auto own = detail::make_rows("query", query, options.normalise, 0, 1);
  detail::for_each_query_block(own, sizes[0], group, [&](const detail::Rows& block, int64_t) {
    const auto ranking = ranker.rank(block, group);
    for (int64_t i = 0; i < block.size(); ++i) {
      const auto first = ranking.first[i], last = ranking.first[i + 1];
      if (first < last) add_query(std::span(ranking.before).subspan(first, last - first), scores);
    }
    scores.num_queries += block.size();
  });
  divide(scores);
  return scores;
}

}  // namespace tandem::evaluation
