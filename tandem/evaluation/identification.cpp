#include "tandem/evaluation/identification.h"

#include <ATen/ATen.h>

#include <functional>
#include <limits>
#include <numeric>

#include "tandem/evaluation/detail/blocks.h"
#include "tandem/evaluation/detail/checks.h"
#include "tandem/evaluation/detail/ranking.h"

namespace tandem::evaluation {
namespace {

/// The results of all probes.
struct Searches {
  std::vector<int64_t> places;    // of mates, from 0
  std::vector<double> winners;    // similarities of mates above all others
  std::vector<double> non_mated;  // the highest similarity of each non-mated probe
};

void check_options(const IdentificationOptions& options) {
  detail::check_block_bytes("identification", options.block_bytes);
  for (size_t i = 0; i < options.top.size(); ++i)
    TORCH_CHECK_VALUE(options.top[i] >= 1, "identification: top[", i, "] is ", options.top[i], ", wanted 1 or more");
  detail::check_rates("identification: fpirs", options.fpirs);
}

void add_block(const detail::Ranking& ranking, int64_t num_probes, Searches& searches) {
  for (int64_t i = 0; i < num_probes; ++i) {
    const auto mate = ranking.first[i];
    if (mate == ranking.first[i + 1]) {
      searches.non_mated.push_back(ranking.best_other[i]);
      continue;
    }
    searches.places.push_back(ranking.before[mate]);
    const double similarity = ranking.matches[mate].similarity;
    if (similarity > ranking.best_other[i]) searches.winners.push_back(similarity);
  }
}

double threshold_at(const std::vector<double>& falling, double rate) {
  if (falling.empty()) return -std::numeric_limits<double>::infinity();
  const auto index = static_cast<int64_t>(static_cast<double>(falling.size()) * rate) - 1;
  return falling[std::max<int64_t>(index, 0)];
}

IdentificationScores score(Searches searches, const IdentificationOptions& options) {
  IdentificationScores scores;
  scores.num_mated = static_cast<int64_t>(searches.places.size());
  scores.num_non_mated = static_cast<int64_t>(searches.non_mated.size());
  const double mated = double(std::max<int64_t>(1, scores.num_mated));
  for (const int64_t k : options.top)
    scores.top.push_back(double(std::ranges::count_if(searches.places, [k](int64_t at) { return at < k; })) / mated);
  std::ranges::sort(searches.non_mated, std::greater());
  for (const double rate : options.fpirs) {
    const double threshold = threshold_at(searches.non_mated, rate);
    const auto found = std::ranges::count_if(searches.winners, [&](double winner) { return winner > threshold; });
    scores.threshold.push_back(threshold);
    scores.tpir.push_back(double(found) / mated);
  }
  return scores;
}

std::vector<double> mean_of(const std::vector<double>& a, const std::vector<double>& b) {
  TORCH_CHECK_VALUE(a.size() == b.size(), "identification: scores of ", a.size(), " and of ", b.size(),
                    " settings, wanted the same settings");
  std::vector<double> mean;
  for (size_t i = 0; i < a.size(); ++i) mean.push_back((a[i] + b[i]) / 2);
  return mean;
}

}  // namespace

IdentificationScores identify(const Samples& probe, const Samples& gallery, const IdentificationOptions& options,
                              comm::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  check_options(options);
  detail::check_samples("probe", probe);
  detail::check_samples("gallery", gallery);
  const Samples probes = {probe.features, probe.identity, {}}, entries = {gallery.features, gallery.identity, {}};
  const auto sizes = detail::exchange_sizes({probes, entries}, group);
  const int64_t first_key = std::accumulate(sizes[1].begin(), sizes[1].begin() + group.rank(), int64_t{0});
  const detail::GalleryRanker ranker(detail::make_rows("gallery", entries, options.normalise, first_key, 1), false,
                                     true, options.block_bytes);
  Searches searches;
  const auto own = detail::make_rows("probe", probes, options.normalise, 0, 1);
  detail::for_each_query_block(own, sizes[0], group, [&](const detail::Rows& block, int64_t) {
    add_block(ranker.rank(block, group), block.size(), searches);
  });
  return score(std::move(searches), options);
}

IdentificationScores mean_of(const IdentificationScores& a, const IdentificationScores& b) {
  return {mean_of(a.top, b.top), mean_of(a.tpir, b.tpir), mean_of(a.threshold, b.threshold), a.num_mated + b.num_mated,
          a.num_non_mated + b.num_non_mated};
}

}  // namespace tandem::evaluation
