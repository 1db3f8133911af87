#pragma once
#include <functional>
#include <span>
#include <string_view>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

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

  int least_ranks = 1;  // for which it is something
};

/// sum, mean, trimmed-mean, median; the first is the default. Of single numbers; trimmed-mean leaves the largest and
/// the smallest out. Source of the last two: Yin et al. 2018, Byzantine-robust distributed learning (arXiv:1803.01498).
std::span<const Aggregate> aggregates();

/// Throws SettingsError (unknown name), naming `ps.aggregate`.
const Aggregate& aggregate_of(std::string_view name);

/// Replaces a gradient [n] of each rank by the aggregate of all, the same bits on all ranks. Each rank is the server of
/// a part (comm::split_sizes):
///
///   rank 0   a0 b0 c0 ─┐ push                 server 0   a = of(a0 a1 a2) ─┐ pull
///   rank 1   a1 b1 c1 ─┼─ all_to_all ─▶       server 1   b = of(b0 b1 b2) ─┼─ all_gather ─▶  a b c
///   rank 2   a2 b2 c2 ─┘                      server 2   c = of(c0 c1 c2) ─┘
///
/// Wire over N ranks: 2 (N - 1) n numbers. Memory: three times n numbers, and what `of` needs for n. Collective.
void aggregate_(const Tensor& gradient, const Aggregate& aggregate, comm::ProcessGroup& group,
                flight::Where where = flight::Where::current());

}  // namespace tandem::parallel
