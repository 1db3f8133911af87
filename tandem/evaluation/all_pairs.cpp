#include "tandem/evaluation/all_pairs.h"

#include <ATen/ATen.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <mutex>

#include "tandem/comm/collectives.h"
#include "tandem/evaluation/detail/blocks.h"
#include "tandem/evaluation/detail/checks.h"
#include "tandem/evaluation/detail/pair_counts.h"

namespace tandem::evaluation {
namespace {

using detail::PairCounts;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// All similarities are within +-reach; a matrix product is off by at most slack.
struct Bounds {
  double reach, slack;
};

Bounds find_bounds(const detail::Rows& rows, comm::ProcessGroup& group) {
  const auto own = rows.size() > 0 ? rows.scales.amax({0}) : at::zeros({2}, at::kDouble);
  const auto most = comm::all_reduce(own, group, comm::Reduce::max);
  const double factor = most[0].item<double>(), length = most[1].item<double>();
  const double reach = std::max(length * length, std::numeric_limits<double>::min());
  const double slack = detail::relative_slack(rows) * reach + detail::smallest_slack(rows) * factor * factor;
  return {reach, slack};
}

/// Visits each pair once over all ranks. Keys are dealt to the ranks in turn, so that all ranks have about as much
/// work, and a rank can skip its rows before the block. Collective.
template <class Visit>
void for_each_pair(const detail::Rows& own, const std::vector<int64_t>& sizes, double slack, int64_t block_bytes,
                   comm::ProcessGroup& group, Visit visit) {
  std::mutex mutex;
  detail::for_each_query_block(own, sizes, group, [&](const detail::Rows& queries, int64_t begin) {
    const auto later = own.narrow(std::min(begin, own.size()), std::max<int64_t>(0, own.size() - begin));
    const auto *query = queries.label(), *entries = later.label();
    detail::for_each_row(queries, later, block_bytes, [&](const detail::BlockRow& row) {
      const auto& label = query[row.query];
      if (label.identity < 0) return;
      const std::lock_guard lock(mutex);
      for (size_t j = 0; j < row.value.size(); ++j) {
        const auto& entry = entries[row.first + j];
        if (entry.identity < 0 || entry.key <= label.key) continue;
        const auto exact = [&] { return detail::similarity(queries, row.query, later, row.first + j); };
        visit(row.slack[j] <= slack ? row.value[j] : exact(), entry.identity == label.identity, exact);
      }
    });
  });
}

/// Bins of equal width over +-reach. Values outside of it, by rounding, are counted in the outermost bins.
class Histogram {
 public:
  Histogram(double reach, int64_t num_bins)
      : reach_(reach),
        num_bins_(num_bins),
        counts_(at::zeros({num_bins + 1}, at::kLong)),
        count_(counts_.mutable_data_ptr<int64_t>()) {}

  void add(double value, bool is_same) { ++count_[is_same ? num_bins_ : bin_of(value)]; }
  void sum_over(comm::ProcessGroup& group) { comm::all_reduce_(counts_, group); }

  int64_t num_same() const { return count_[num_bins_]; }
  int64_t num_different() const { return counts_.sum().item<int64_t>() - num_same(); }

  /// The bin that holds number `index` of the different pairs, in falling order.
  std::pair<double, double> bin_that_holds(int64_t index) const {
    int64_t bin = num_bins_ - 1;
    for (int64_t above = count_[bin]; above <= index; above += count_[bin]) --bin;
    return {bin == 0 ? -kInfinity : edge(bin), bin + 1 == num_bins_ ? kInfinity : edge(bin + 1)};
  }

 private:
  int64_t bin_of(double value) const {
    const double place = (value / reach_ + 1) / 2 * double(num_bins_);
    return static_cast<int64_t>(std::clamp(place, 0.0, double(num_bins_ - 1)));
  }
  double edge(int64_t bin) const { return (2 * double(bin) / double(num_bins_) - 1) * reach_; }

  double reach_;
  int64_t num_bins_;
  Tensor counts_;  // the last element counts the same pairs
  int64_t* count_;
};

/// What the second pass finds for one threshold.
struct Window {
  int64_t index = 0;                         // of the threshold among the different pairs, in falling order
  double low = kInfinity, high = kInfinity;  // by default empty
  PairCounts above;
  std::map<double, PairCounts, std::greater<>> within;
};

/// The similarities at which rounding may put a pair on the wrong side of the threshold. Both passes can be off by the
/// slack, and the edges of bins are rounded too.
Window window_of(int64_t index, const Histogram& histogram, const Bounds& bounds) {
  const auto [low, high] = histogram.bin_that_holds(index);
  const double margin = 2 * bounds.slack + 1e-12 * bounds.reach;
  return {.index = index, .low = low - margin, .high = high + margin};
}

/// The number of n different pairs that may be accepted: the most whose share is not above `far`.
int64_t num_allowed(double far, int64_t n) {
  auto k = static_cast<int64_t>(far * double(n));
  while (k < n && double(k + 1) / double(n) <= far) ++k;
  while (k > 0 && double(k) / double(n) > far) --k;
  return k;
}

std::vector<Window> make_windows(const std::vector<double>& fars, const Histogram& histogram, const Bounds& bounds) {
  const int64_t num_different = histogram.num_different();
  std::vector<Window> windows;
  for (const double far : fars) {
    const int64_t index = num_allowed(far, num_different);
    windows.push_back(index < num_different ? window_of(index, histogram, bounds) : Window{.index = index});
  }
  return windows;
}

void share(Window& window, comm::ProcessGroup& group) {
  std::vector<int64_t> numbers;
  for (const auto& [value, counts] : window.within)
    numbers.insert(numbers.end(), {std::bit_cast<int64_t>(value), counts.same, counts.different});
  const auto packed = at::tensor(numbers, at::kLong).view({static_cast<int64_t>(window.within.size()), 3});
  const auto all = comm::all_gather(packed, group);
  const auto above = comm::all_reduce(at::tensor({window.above.same, window.above.different}, at::kLong), group);
  window.above = {above[0].item<int64_t>(), above[1].item<int64_t>()};
  window.within.clear();
  const auto* number = all.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < all.size(0); ++i, number += 3)
    window.within[std::bit_cast<double>(number[0])] += PairCounts{number[1], number[2]};
}

/// The similarity of the first different pair that must be rejected, and the share of the same pairs above it.
std::pair<double, double> threshold_and_tar(const Window& window, int64_t num_same) {
  auto accepted = window.above;
  for (const auto& [value, counts] : window.within) {
    if (accepted.different + counts.different > window.index)
      return {value, double(accepted.same) / double(std::max<int64_t>(1, num_same))};
    accepted += counts;
  }
  TORCH_INTERNAL_ASSERT(false, "all pairs: no similarity near that of different pair ", window.index);
}

}  // namespace

AllPairsScores compare_all_pairs(const Samples& samples, const AllPairsOptions& options, comm::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  detail::check_rates("all pairs: fars", options.fars);
  detail::check_block_bytes("all pairs", options.block_bytes);
  TORCH_CHECK_VALUE(options.num_bins >= 1, "all pairs: num_bins is ", options.num_bins, ", wanted 1 or more");
  detail::check_samples("samples", samples);
  const Samples all = {samples.features, samples.identity, {}};
  const auto sizes = detail::exchange_sizes({all}, group)[0];
  const auto rows = detail::make_rows("samples", all, options.normalise, group.rank(), group.size());
  const auto bounds = find_bounds(rows, group);
  const auto visit_all = [&](const auto& visit) {
    for_each_pair(rows, sizes, bounds.slack, options.block_bytes, group, visit);
  };

  Histogram histogram(bounds.reach, options.num_bins);
  visit_all([&](double value, bool is_same, const auto&) { histogram.add(value, is_same); });
  histogram.sum_over(group);
  AllPairsScores scores = {.num_same = histogram.num_same(), .num_different = histogram.num_different()};

  auto windows = make_windows(options.fars, histogram, bounds);
  double lowest = kInfinity;
  for (const auto& window : windows) lowest = std::min(lowest, window.low);
  visit_all([&](double value, bool is_same, const auto& exact) {
    if (value < lowest) return;
    for (auto& window : windows) {
      if (value > window.high) ++window.above.of(is_same);
      if (value >= window.low && value <= window.high) ++window.within[exact()].of(is_same);
    }
  });
  for (auto& window : windows) {
    share(window, group);
    const bool has_all = window.index >= scores.num_different;
    const auto [threshold, tar] =
        has_all ? std::pair(-kInfinity, scores.num_same > 0 ? 1.0 : 0.0) : threshold_and_tar(window, scores.num_same);
    scores.threshold.push_back(threshold);
    scores.tar.push_back(tar);
  }
  return scores;
}

}  // namespace tandem::evaluation
