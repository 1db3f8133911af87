#include "tandem/parallel/aggregation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <limits>

#include "tandem/base/context.h"
#include "tandem/base/error.h"

namespace tandem::parallel {
namespace {

/// In rank order, as thread-ranks sum in all_reduce: the same bits.
Tensor sum_of(const Tensor& gradients) {
  auto sum = gradients[0];
  for (int64_t rank = 1; rank < gradients.size(0); ++rank) sum.add_(gradients[rank]);
  return sum;
}

Tensor mean_of(const Tensor& gradients) { return sum_of(gradients).div_(gradients.size(0)); }

/// The mean of the numbers whose places in rising order, over the ranks, are first .. first + count - 1. Sorting puts
/// NaN last.
Tensor mean_of_places(const Tensor& gradients, int64_t first, int64_t count) {
  const auto sorted = std::get<0>(gradients.sort(0));
  const auto mean = sorted.narrow(0, first, count).mean(0);
  const auto last = sorted[sorted.size(0) - 1];
  return mean.masked_fill_(last.isnan(), std::numeric_limits<double>::quiet_NaN());
}

Tensor trimmed_mean_of(const Tensor& gradients) { return mean_of_places(gradients, 1, gradients.size(0) - 2); }

Tensor median_of(const Tensor& gradients) {
  const int64_t ranks = gradients.size(0);
  return mean_of_places(gradients, (ranks - 1) / 2, ranks % 2 == 1 ? 1 : 2);
}

}  // namespace

std::span<const Aggregate> aggregates() {
  static const std::array<Aggregate, 4> all = {
      {{"sum", "the gradient of the whole batch", sum_of, /*takes_means=*/false},
       {"mean", "the mean of the ranks' mean gradients", mean_of},
       {"trimmed-mean", "the same without the largest and the smallest of each number", trimmed_mean_of,
        /*takes_means=*/true, /*least_ranks=*/3},
       {"median", "the median of each number", median_of}}};
  return all;
}

const Aggregate& aggregate_of(std::string_view name) {
  const auto at = std::ranges::find(aggregates(), name, &Aggregate::name);
  if (at != aggregates().end()) return *at;
  std::string names;
  for (const auto& aggregate : aggregates()) names += (names.empty() ? "" : ", ") + std::string(aggregate.name);
  throw SettingsError("ps.aggregate is '" + std::string(name) + "', wanted one of " + names);
}

void check_workers(const Aggregate& aggregate, const Servers& servers) {
  if (servers.workers() >= aggregate.least_ranks) return;
  throw SettingsError("aggregate is " + std::string(aggregate.name) + " with " + std::to_string(servers.workers()) +
                      " ranks, wanted " + std::to_string(aggregate.least_ranks) + " or more");
}

double pushed_factor(const Aggregate& aggregate, const MicroBatch& micro, const Servers& servers) {
  if (!aggregate.takes_means) return 1;
  if (micro.samples == 0) return servers.workers();
  return micro.own_samples == 0 ? 0.0 : static_cast<double>(micro.samples) / static_cast<double>(micro.own_samples);
}

void aggregate_(const Tensor& gradient, const Aggregate& aggregate, const Servers& servers, flight::Where where) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::communication);
  auto part = servers.push(gradient, where);
  if (servers.is_server()) part = aggregate.of(part);
  const auto pulled = servers.pull(part, gradient.numel(), where);
  servers.is_worker() ? gradient.copy_(pulled) : servers.own_part(gradient).copy_(part);
}

}  // namespace tandem::parallel
