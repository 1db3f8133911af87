#include "tandem/evaluation/lfw.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "tandem/comm/split.h"
#include "tandem/evaluation/detail/checks.h"
#include "tandem/evaluation/detail/pair_counts.h"

namespace tandem::evaluation {
namespace {

using detail::PairCounts;
constexpr double kLastThreshold = 4, kStep = 0.01, kFarStep = 0.001;

struct Pairs {
  std::span<const double> distances;
  std::span<const bool> same;

  int64_t size() const { return static_cast<int64_t>(same.size()); }
  PairCounts counts() const {
    const int64_t num_same = std::count(same.begin(), same.end(), true);
    return {num_same, size() - num_same};
  }
  Pairs part(int64_t begin, int64_t end) const {
    return {distances.subspan(begin, end - begin), same.subspan(begin, end - begin)};
  }
};

PairCounts accepted(const Pairs& pairs, double threshold) {
  PairCounts counts;
  for (int64_t i = 0; i < pairs.size(); ++i)
    if (pairs.distances[i] < threshold) ++counts.of(pairs.same[i]);
  return counts;
}

/// accepted() for the thresholds 0, step, 2 step, .. below the last, in one pass.
std::vector<PairCounts> accepted_at_each(const Pairs& pairs, double step) {
  const auto num = static_cast<int64_t>(std::lround(kLastThreshold / step));
  std::vector<PairCounts> counts(num);
  for (int64_t i = 0; i < pairs.size(); ++i) {
    const double distance = pairs.distances[i];
    // Rounding may put the quotient on the wrong side of a threshold, which is a product.
    auto at = std::clamp<int64_t>(static_cast<int64_t>(distance / step) - 1, 0, num);
    while (at < num && distance >= double(at) * step) ++at;
    if (at < num) ++counts[at].of(pairs.same[i]);
  }
  for (int64_t at = 1; at < num; ++at) counts[at] += counts[at - 1];
  return counts;
}

/// Accepted pairs of all folds but one, at each threshold.
std::vector<PairCounts> without(std::vector<PairCounts> all, const std::vector<PairCounts>& fold) {
  for (size_t at = 0; at < all.size(); ++at) all[at] = all[at] - fold[at];
  return all;
}

/// The first threshold with the most correct decisions: same pairs accepted, different ones rejected.
double best_threshold(const std::vector<PairCounts>& accepted) {
  const auto best = std::max_element(accepted.begin(), accepted.end(), [](const auto& a, const auto& b) {
    return a.same - a.different < b.same - b.different;
  });
  return double(best - accepted.begin()) * kStep;
}

double far_threshold(const std::vector<PairCounts>& accepted, int64_t num_different, double far) {
  double before = 0;
  for (size_t at = 0; at < accepted.size(); ++at) {
    const double rate = double(accepted[at].different) / double(num_different);
    if (rate >= far) return (double(at) - (rate - far) / (rate - before)) * kFarStep;
    before = rate;
  }
  return 0;
}

std::pair<double, double> mean_and_deviation(const std::vector<double>& values) {
  const double n = double(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / n)};
}

LfwScores score(const Pairs& pairs, const LfwOptions& options) {
  const auto all = accepted_at_each(pairs, kStep), all_fine = accepted_at_each(pairs, kFarStep);
  std::vector<double> accuracies, vals, fars;
  for (int fold = 0; fold < options.num_folds; ++fold) {
    const auto [begin, end] = comm::split_range(pairs.size(), options.num_folds, fold);
    const auto own = pairs.part(begin, end);
    const auto num = own.counts();
    TORCH_CHECK_VALUE(num.same > 0 && num.different > 0, "lfw: fold ", fold, " holds ", num.same, " same pairs of ",
                      own.size(), ", wanted some of both kinds");
    const auto called = accepted(own, best_threshold(without(all, accepted_at_each(own, kStep))));
    accuracies.push_back(double(called.same + num.different - called.different) / double(own.size()));
    const double threshold = far_threshold(without(all_fine, accepted_at_each(own, kFarStep)),
                                           pairs.counts().different - num.different, options.far);
    const auto taken = accepted(own, threshold);
    vals.push_back(double(taken.same) / double(num.same));
    fars.push_back(double(taken.different) / double(num.different));
  }
  const auto [accuracy, accuracy_deviation] = mean_and_deviation(accuracies);
  const auto [val, val_deviation] = mean_and_deviation(vals);
  return {accuracy, accuracy_deviation, val, val_deviation, mean_and_deviation(fars).first};
}

Tensor squared_distances(const Tensor& first, const Tensor& second) {
  const auto unit = [](const Tensor& x) {
    const auto wide = x.to(at::kDouble);
    const auto length = wide.norm(2, {1}, true);
    return wide / at::where(length.gt(0), length, at::ones_like(length));
  };
  return (unit(first) - unit(second)).square_().sum(1);
}

}  // namespace

LfwScores lfw(const Tensor& first, const Tensor& second, const Tensor& same, const LfwOptions& options) {
  const at::NoGradGuard no_grad;
  detail::check_features("lfw: first", first);
  detail::check_features("lfw: second", second);
  TORCH_CHECK_VALUE(first.sizes() == second.sizes(), "lfw: second is ", second.sizes(), ", wanted ", first.sizes(),
                    " like first");
  detail::check_column("lfw: same", same, at::kBool, first.size(0));
  TORCH_CHECK_VALUE(options.num_folds >= 2, "lfw: num_folds is ", options.num_folds, ", wanted 2 or more");
  TORCH_CHECK_VALUE(options.far > 0 && options.far <= 1, "lfw: far is ", options.far, ", wanted above 0, up to 1");
  const auto distances = squared_distances(first, second), flags = same.contiguous();
  TORCH_CHECK_VALUE(distances.isfinite().all().item<bool>(), "lfw: features are not finite, wanted numbers");
  const auto num = static_cast<size_t>(first.size(0));
  return score({{distances.const_data_ptr<double>(), num}, {flags.const_data_ptr<bool>(), num}}, options);
}

}  // namespace tandem::evaluation
