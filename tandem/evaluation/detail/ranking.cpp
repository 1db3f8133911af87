#include "tandem/evaluation/detail/ranking.h"

#include <ATen/ATen.h>

#include <bit>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>

#include "tandem/comm/collectives.h"
#include "tandem/evaluation/detail/blocks.h"

namespace tandem::evaluation::detail {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

/// The matches of all ranks, in the order of Ranking.
std::vector<Match> gather_matches(const std::vector<Match>& own, comm::ProcessGroup& group) {
  const int64_t n = static_cast<int64_t>(own.size());
  const auto packed = at::empty({n, 3}, at::kLong);
  auto* number = packed.mutable_data_ptr<int64_t>();
  for (const auto& match : own) {
    *number++ = match.query;
    *number++ = match.key;
    *number++ = std::bit_cast<int64_t>(match.similarity);
  }
  const auto gathered = comm::all_gather(packed, group);
  const auto* numbers = gathered.const_data_ptr<int64_t>();
  std::vector<Match> all;
  for (int64_t i = 0; i < gathered.size(0); ++i, numbers += 3)
    all.push_back({numbers[0], numbers[1], std::bit_cast<double>(numbers[2])});
  std::sort(all.begin(), all.end(), [](const Match& a, const Match& b) {
    return std::tuple(a.query, -a.similarity, a.key) < std::tuple(b.query, -b.similarity, b.key);
  });
  return all;
}

std::span<const Match> matches_of(const Ranking& ranking, int64_t query) {
  const auto* matches = ranking.matches.data();
  return {matches + ranking.first[query], matches + ranking.first[query + 1]};
}

/// The number of matches before an entry.
template <class Exact>
size_t place(std::span<const Match> matches, double value, double slack, int64_t key, Exact exact) {
  if (matches.empty() || value + slack < matches.back().similarity) return matches.size();
  const auto stands_before = [&](const Match& match) { return match.similarity > value; };
  auto at = std::partition_point(matches.begin(), matches.end(), stands_before);
  const bool is_near = (at != matches.begin() && std::prev(at)->similarity - value <= slack) ||
                       (at != matches.end() && value - at->similarity <= slack);
  if (is_near) {
    const std::pair entry(-exact(), key);
    at = std::partition_point(matches.begin(), matches.end(),
                              [&](const Match& match) { return std::pair(-match.similarity, match.key) < entry; });
  }
  return at - matches.begin();
}

}  // namespace

GalleryRanker::GalleryRanker(Rows gallery, bool use_cameras, bool find_best_other, int64_t block_bytes)
    : gallery_(std::move(gallery)),
      use_cameras_(use_cameras),
      find_best_other_(find_best_other),
      block_bytes_(block_bytes) {
  const auto* labels = gallery_.label();
  for (int64_t row = 0; row < gallery_.size(); ++row)
    if (labels[row].identity >= 0) rows_of_.emplace_back(labels[row].identity, row);
  std::sort(rows_of_.begin(), rows_of_.end());
}

std::vector<Match> GalleryRanker::own_matches(const Rows& queries) const {
  const auto *query = queries.label(), *entries = gallery_.label();
  std::vector<Match> found;
  for (int64_t i = 0; i < queries.size(); ++i) {
    auto at = std::lower_bound(rows_of_.begin(), rows_of_.end(), std::pair(query[i].identity, int64_t{0}));
    for (; at != rows_of_.end() && at->first == query[i].identity; ++at) {
      const auto& entry = entries[at->second];
      if (use_cameras_ && entry.camera == query[i].camera) continue;
      found.push_back({i, entry.key, similarity(queries, i, gallery_, at->second)});
    }
  }
  return found;
}

/// counts, for query i from first[i] + i on: the number of other entries that have 0, 1, ... of its matches before
/// them.
void GalleryRanker::count(const Rows& queries, const Ranking& ranking, int64_t* counts, double* best_other) const {
  const auto *query = queries.label(), *entries = gallery_.label();
  for_each_row(queries, gallery_, block_bytes_, [&](const BlockRow& row) {
    const auto matches = matches_of(ranking, row.query);
    if (matches.empty() && !find_best_other_) return;
    auto* own_counts = counts + ranking.first[row.query] + row.query;
    for (size_t j = 0; j < row.value.size(); ++j) {
      const auto& entry = entries[row.first + j];
      if (entry.identity < 0 || entry.identity == query[row.query].identity) continue;
      const auto exact = [&] { return similarity(queries, row.query, gallery_, row.first + j); };
      ++own_counts[place(matches, row.value[j], row.slack[j], entry.key, exact)];
      if (find_best_other_ && row.value[j] + row.slack[j] > best_other[row.query])
        best_other[row.query] = std::max(best_other[row.query], exact());
    }
  });
}

Ranking GalleryRanker::rank(const Rows& queries, comm::ProcessGroup& group) const {
  Ranking ranking;
  ranking.matches = gather_matches(own_matches(queries), group);
  const int64_t num_queries = queries.size(), num_matches = static_cast<int64_t>(ranking.matches.size());
  ranking.first.assign(num_queries + 1, 0);
  for (const auto& match : ranking.matches) ++ranking.first[match.query + 1];
  std::partial_sum(ranking.first.begin(), ranking.first.end(), ranking.first.begin());

  const auto counts = at::zeros({num_matches + num_queries}, at::kLong);
  const auto best = at::full({find_best_other_ ? num_queries : 0}, kNone, at::kDouble);
  count(queries, ranking, counts.mutable_data_ptr<int64_t>(), best.mutable_data_ptr<double>());
  comm::all_reduce_(counts, group);
  if (find_best_other_) comm::all_reduce_(best, group, comm::Reduce::max);

  const auto* number = counts.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < num_queries; ++i) {
    int64_t before = 0;
    for (int64_t m = ranking.first[i]; m < ranking.first[i + 1]; ++m) ranking.before.push_back(before += number[m + i]);
  }
  ranking.best_other.assign(best.const_data_ptr<double>(), best.const_data_ptr<double>() + best.numel());
  return ranking;
}

}  // namespace tandem::evaluation::detail
