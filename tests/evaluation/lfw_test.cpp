#include "tandem/evaluation/lfw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tandem/comm/split.h"
#include "tests/support/text_of.h"

namespace tandem::evaluation {
namespace {

using tandem::test::text_of;

struct PairSet {
  Tensor first, second;
  std::vector<double> distances;
  std::vector<bool> same;
  Tensor flags() const { return at::tensor(std::vector<int64_t>(same.begin(), same.end()), at::kLong).to(at::kBool); }
};

/// Pairs on a circle at angles whose squared distance is known; a length that must not matter.
PairSet draw_pairs(int num, at::ScalarType dtype, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform;
  PairSet set;
  std::vector<double> first, second;
  for (int i = 0; i < num; ++i) {
    set.same.push_back(i % 2 == 0);
    const double start = 6 * uniform(random), angle = 2.2 * uniform(random) + (set.same.back() ? 0 : 0.9);
    const double lengths[] = {0.5 + uniform(random), 0.5 + uniform(random)};
    first.insert(first.end(), {lengths[0] * std::cos(start), lengths[0] * std::sin(start)});
    second.insert(second.end(), {lengths[1] * std::cos(start + angle), lengths[1] * std::sin(start + angle)});
    set.distances.push_back(2 - 2 * std::cos(angle));
  }
  set.first = at::tensor(first, at::kDouble).view({num, 2}).to(dtype);
  set.second = at::tensor(second, at::kDouble).view({num, 2}).to(dtype);
  return set;
}

struct Rates {
  double right, val, far;
};

Rates rates_below(double threshold, const PairSet& set, const std::vector<bool>& counts) {
  double same = 0, different = 0, accepted_same = 0, accepted_different = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (!counts[i]) continue;
    ++(set.same[i] ? same : different);
    if (set.distances[i] < threshold) ++(set.same[i] ? accepted_same : accepted_different);
  }
  return {(accepted_same + different - accepted_different) / (same + different), accepted_same / same,
          accepted_different / different};
}

/// Fold by fold and threshold by threshold, as the definition says.
LfwScores expected_scores(const PairSet& set, const LfwOptions& options) {
  std::vector<double> accuracies, vals;
  double fars = 0;
  for (int fold = 0; fold < options.num_folds; ++fold) {
    const auto [begin, end] = comm::split_range(int64_t(set.same.size()), options.num_folds, fold);
    std::vector<bool> own(set.same.size()), others(set.same.size());
    for (int64_t i = 0; i < int64_t(own.size()); ++i) own[i] = i >= begin && i < end, others[i] = !own[i];
    double best = -1, best_threshold = 0;
    for (int i = 0; i < 400; ++i) {
      const double right = rates_below(i * 0.01, set, others).right;
      if (right > best) best = right, best_threshold = i * 0.01;
    }
    accuracies.push_back(rates_below(best_threshold, set, own).right);
    double threshold = 0, before = 0;
    for (int i = 0; i < 4000; ++i) {
      const double far = rates_below(i * 0.001, set, others).far;
      if (far >= options.far) {
        threshold = (i - 1) * 0.001 + 0.001 * (options.far - before) / (far - before);
        break;
      }
      before = far;
    }
    vals.push_back(rates_below(threshold, set, own).val), fars += rates_below(threshold, set, own).far;
  }
  const auto accuracy = at::tensor(accuracies, at::kDouble), val = at::tensor(vals, at::kDouble);
  return {accuracy.mean().item<double>(), accuracy.std(false).item<double>(), val.mean().item<double>(),
          val.std(false).item<double>(), fars / options.num_folds};
}

TEST(Lfw, EqualsTheDefinition) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const LfwOptions options : {LfwOptions{}, LfwOptions{.num_folds = 7, .far = 0.05}}) {
      const auto set = draw_pairs(211, dtype, 5);  // folds of different sizes
      const auto scores = lfw(set.first, set.second, set.flags(), options), expected = expected_scores(set, options);
      EXPECT_NEAR(scores.accuracy, expected.accuracy, 1e-12);
      EXPECT_NEAR(scores.accuracy_deviation, expected.accuracy_deviation, 1e-12);
      EXPECT_NEAR(scores.val, expected.val, 1e-12);
      EXPECT_NEAR(scores.val_deviation, expected.val_deviation, 1e-12);
      EXPECT_NEAR(scores.far, expected.far, 1e-12);
      EXPECT_GT(scores.accuracy, 0.6);
      EXPECT_LT(scores.accuracy, 1);
      EXPECT_GT(scores.val, 0.1);
    }
  }
}

TEST(Lfw, PairsThatAreFarApartOrAlike) {
  const auto right = at::tensor({1.f, 0.f}), left = -right;
  const auto first = at::stack({right, right, right, right}), second = at::stack({right, left, right, left});
  const auto same = at::tensor(std::vector<int64_t>{1, 0, 1, 0}, at::kLong).to(at::kBool);
  const auto scores = lfw(first, second, same, {.num_folds = 2});
  EXPECT_EQ(scores.accuracy, 1);
  EXPECT_EQ(scores.accuracy_deviation, 0);
  EXPECT_EQ(scores.val, 0);  // no threshold below 4 accepts a different pair: 0, as the protocol says
  EXPECT_EQ(scores.far, 0);
}

TEST(Lfw, FaultsAreNamed) {
  const auto set = draw_pairs(40, at::kFloat, 1);
  const auto fault = [&](const Tensor& first, const Tensor& second, const Tensor& same,
                         const LfwOptions& options = {}) {
    return text_of([&] { lfw(first, second, same, options); });
  };
  const auto x = set.first, y = set.second, same = set.flags();
  EXPECT_EQ(fault(x.to(at::kInt), y, same), "lfw: first are Int, wanted Float or Double");
  EXPECT_EQ(fault(x, y[0], same), "lfw: second are [2], wanted [n, D]");
  EXPECT_EQ(fault(x, y.slice(0, 1), same), "lfw: second is [39, 2], wanted [40, 2] like first");
  EXPECT_EQ(fault(x, y, x), "lfw: same is Float, wanted Bool");
  EXPECT_EQ(fault(x, y, same.slice(0, 1)), "lfw: same is [39], wanted [40]");
  EXPECT_EQ(fault(x, y / 0, same), "lfw: features are not finite, wanted numbers");
  EXPECT_EQ(fault(x, y, same, {.num_folds = 1}), "lfw: num_folds is 1, wanted 2 or more");
  EXPECT_EQ(fault(x, y, same, {.far = 0}), "lfw: far is 0, wanted above 0, up to 1");
  EXPECT_EQ(fault(x, y, at::ones_like(same)), "lfw: fold 0 holds 4 same pairs of 4, wanted some of both kinds");
}

}  // namespace
}  // namespace tandem::evaluation
