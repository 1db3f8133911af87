#pragma once
#include <functional>
#include <span>
#include <string_view>

#include "tandem/base/tensor.h"
#include "tandem/parallel/gradient_sync.h"
#include "tandem/parallel/servers.h"

namespace tandem::parallel {

/// How a server makes one gradient of those that the ranks have pushed. Rows of aggregates(), or an object of your own.
struct Aggregate {
  std::string_view name;  // as the setting ps.aggregate spells it
  std::string_view doc;   // for the settings' table

  /// [ranks, n], in rank order -> [n]. It may change its argument. NaN from any rank must give NaN: so a rank tells the
  /// others of a fault.
  std::function<Tensor(const Tensor& gradients)> of;

  /// True: the ranks push the gradients of their own mean losses, which are estimates of one gradient. False: their
  /// shares of the whole batch's gradient, whose sum it is.
  bool takes_means = true;

  int least_ranks = 1;  // that bring gradients, for which it is something
};

/// sum, mean, trimmed-mean, median; the first is the default. Of single numbers; trimmed-mean leaves the largest and
/// the smallest out. Source of the last two: Yin et al. 2018, Byzantine-robust distributed learning (arXiv:1803.01498).
std::span<const Aggregate> aggregates();

/// Throws SettingsError (unknown name), naming `ps.aggregate`.
const Aggregate& aggregate_of(std::string_view name);

/// Throws SettingsError, naming `aggregate`, if the servers have fewer workers than it needs.
void check_workers(const Aggregate& aggregate, const Servers& servers);

/// What a worker's gradient, its share of the whole batch's, is multiplied by before it is pushed.
double pushed_factor(const Aggregate& aggregate, const MicroBatch& micro, const Servers& servers);

/// Replaces a gradient [n] of each worker by the aggregate of all, the same bits on all workers. Each server makes a
/// part of it:
///
///   rank 0   a0 b0 c0 ─┐ push                 server 0   a = of(a0 a1 a2) ─┐ pull
///   rank 1   a1 b1 c1 ─┼─ all_to_all ─▶       server 1   b = of(b0 b1 b2) ─┼─ all_gather ─▶  a b c
///   rank 2   a2 b2 c2 ─┘                      server 2   c = of(c0 c1 c2) ─┘
///
/// Of a rank that only serves, the numbers do not count, and only its own part is replaced. Wire: 2 (N - 1) n numbers
/// over N ranks that all serve; with servers apart 2 W n over W workers. Memory: three times n numbers where all serve,
/// and what `of` needs for n; of a server apart with a part of m numbers, 2 W m and what `of` needs. Collective.
void aggregate_(const Tensor& gradient, const Aggregate& aggregate, const Servers& servers,
                flight::Where where = flight::Where::current());

}  // namespace tandem::parallel
