#include "tandem/classifier/detail/part_loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tandem/base/device_kernels.h"
#include "tandem/base/rng.h"
#include "tandem/comm/world.h"
#include "tests/support/text_of.h"

namespace tandem::classifier {
namespace {

constexpr int64_t kClasses = 7, kDim = 5, kRows = 7;
constexpr double kFactor = 0.5;

Tensor normal(at::IntArrayRef sizes, uint64_t stream, at::ScalarType type) {
  auto values = at::empty(sizes, type);
  fill_normal_(values, 1.0, 3, stream);
  return values;
}

Tensor features_of_all(at::ScalarType type) { return normal({kRows, kDim}, 1, type); }
Tensor weight_of_all(at::ScalarType type) { return normal({kClasses, kDim}, 2, type); }
Tensor targets_of_all() {
  return at::tensor(std::vector<int64_t>{0, 6, 3, -1, 5, 3, 2}, at::kLong);
}  // first, last, left out, twice

struct Case {
  std::string name;
  Scoring scoring;
};

std::vector<Case> margins() {
  auto detached = arcface(24, 0.5);
  detached.margin.gradient = TargetGradient::detached;
  auto scaled = large_margin_softmax(3, 1);
  scaled.scale = 2;
  return {{"plain", plain_softmax()},
          {"normalised", normalised_softmax(24)},
          {"cosface", cosface(24, 0.2)},
          {"arcface", arcface(24, 0.5)},
          {"detached arcface", detached},
          {"sphereface", sphereface(3, 1)},
          {"large margin", large_margin_softmax(3, 1)},
          {"scaled large margin", scaled}};
}

/// Each with and without smoothing, and where the scores are of cosines, a filter.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [name, scoring] : margins()) {
    const bool has_cosines = scoring.normalise_features && scoring.normalise_weight;
    for (const double smoothing : {0.0, 0.2}) {
      for (const double filter : {1.0, 0.3}) {
        if (filter < 1 && !has_cosines) continue;
        auto own = scoring;
        own.smoothing = smoothing;
        own.filter = filter;
        all.push_back({name + ", smoothing " + std::to_string(smoothing) + ", filter " + std::to_string(filter), own});
      }
    }
  }
  return all;
}

struct Found {
  Tensor loss, of_features, of_weight;
  Tensor of_weight_twice = {};  // after the gradient was added once more
};

Found found_by_one_rank(const Scoring& scoring, at::ScalarType type = at::kDouble) {
  const auto group = comm::make_single_group();
  auto features = features_of_all(type).requires_grad_(), weight = weight_of_all(type).requires_grad_();
  const auto loss = sharded_softmax_loss(features, weight, targets_of_all(), 0, kClasses, scoring, *group);
  loss.backward();
  return {loss.detach(), features.grad(), weight.grad()};
}

/// All parts of the classes, and the homes of their rows.
class Parts {
 public:
  Parts(const std::vector<int64_t>& counts, const Scoring& scoring, const BlockOptions& blocks,
        at::ScalarType type = at::kDouble)
      : scoring_(scoring) {
    const auto features = features_of_all(type), weight = weight_of_all(type);
    int64_t first = 0;
    for (const int64_t count : counts) {
      weights_.push_back(weight.narrow(0, first, count).clone().requires_grad_());
      losses_.push_back(
          std::make_unique<PartLoss>(features, weights_.back(), targets_of_all(), first, scoring, blocks));
      losses_.back()->score();
      first += count;
    }
    share_ = targets_of_all().ne(-1).to(type) / losses_[0]->counted();
  }

  /// Home i has rows bounds[i] .. bounds[i + 1] - 1.
  Found found(const std::vector<int64_t>& bounds) {
    auto loss = at::zeros({}, share_.options());
    std::vector<Tensor> gradients, log_sums;
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      auto home = merged(bounds[i], bounds[i + 1]);
      loss += home.loss();
      log_sums.push_back(home.log_sum());
      gradients.push_back(home.take_gradient());
    }
    for (const auto& part : losses_) part->release(0, 0);
    const auto log_sum = at::cat(log_sums);
    const auto once = class_gradient(log_sum), twice = class_gradient(log_sum);
    return {loss, at::cat(gradients), once, twice};
  }

 private:
  PartsMerge merged(int64_t begin, int64_t end) const {
    std::vector<PartScores> parts;
    std::vector<Tensor> numbers;
    for (const auto& loss : losses_) {
      parts.push_back(loss->scores_of(begin, end));
      numbers.push_back(parts.back().numbers);
    }
    PartsMerge home(at::stack(numbers), targets_of_all().slice(0, begin, end), share_.slice(0, begin, end),
                    scoring_.smoothing, kClasses);
    for (const auto& part : parts) home.add(part, kFactor);
    return home;
  }

  /// The weight's .grad, of all parts, after their gradient was added.
  Tensor class_gradient(const Tensor& log_sum) {
    std::vector<Tensor> all;
    for (size_t i = 0; i < losses_.size(); ++i) {
      losses_[i]->add_class_gradient(log_sum, share_ * kFactor, kClasses);
      all.push_back(weights_[i].grad().clone());
    }
    return at::cat(all);
  }

  Scoring scoring_;
  std::vector<Tensor> weights_;
  std::vector<std::unique_ptr<PartLoss>> losses_;
  Tensor share_;  // [N]
};

void expect_equal(const Found& found, const Found& wanted) {
  const auto is_near = [](const Tensor& x, const Tensor& y) { return at::allclose(x, y, 1e-12, 1e-12); };
  EXPECT_TRUE(is_near(found.loss, wanted.loss)) << found.loss << wanted.loss;
  EXPECT_TRUE(is_near(found.of_features, wanted.of_features * kFactor)) << found.of_features << wanted.of_features;
  EXPECT_TRUE(is_near(found.of_weight, wanted.of_weight * kFactor)) << found.of_weight << wanted.of_weight;
  EXPECT_TRUE(is_near(found.of_weight_twice, wanted.of_weight * (2 * kFactor))) << found.of_weight_twice;
}

TEST(PartLoss, LossAndGradientsEqualThoseOfOneRank) {
  const std::vector<std::vector<int64_t>> divisions = {{3, 0, 4}, {7}, {2, 2, 2, 1}};
  for (const auto& [name, scoring] : cases()) {
    const auto wanted = found_by_one_rank(scoring);
    for (const auto& counts : divisions) {
      for (const int64_t rows : {3, 0}) {
        SCOPED_TRACE(name + ", parts " + std::to_string(counts.size()) + ", rows " + std::to_string(rows));
        expect_equal(Parts(counts, scoring, {.rows = rows}).found({0, kRows}), wanted);
      }
    }
  }
}

TEST(PartLoss, OperatorsDoTheWorkOfTheKernels) {
  for (const auto& [name, scoring] : cases()) {
    SCOPED_TRACE(name);
    const auto wanted = found_by_one_rank(scoring);
    leave_to_operators(Kernels::scores, true);
    const auto found = Parts({3, 0, 4}, scoring, {.rows = 3}).found({0, kRows});
    leave_to_operators(Kernels::scores, false);
    expect_equal(found, wanted);
  }
}

/// The second home has no rows.
TEST(PartLoss, RowsMayBeMergedAtSeveralHomes) {
  for (const auto& [name, scoring] : cases()) {
    SCOPED_TRACE(name);
    expect_equal(Parts({2, 2, 2, 1}, scoring, {.rows = 3}).found({0, 3, 3, kRows}), found_by_one_rank(scoring));
  }
}

/// Classes 2..4, which are the targets of rows 2, 5 and 6.
PartLoss scored_part(const Scoring& scoring) {
  const auto weight = weight_of_all(at::kDouble).narrow(0, 2, 3).clone();
  return {features_of_all(at::kDouble), weight, targets_of_all(), 2, scoring, {}};
}

void expect_same(const PartScores& found, const PartScores& wanted) {
  EXPECT_TRUE(found.numbers.equal(wanted.numbers));
  EXPECT_TRUE(found.of_scores.equal(wanted.of_scores));
  EXPECT_TRUE(found.evenly.equal(wanted.evenly));
  EXPECT_TRUE(found.target_rows.equal(wanted.target_rows));
  EXPECT_TRUE(found.of_targets.equal(wanted.of_targets));
}

TEST(PartLoss, ReleaseKeepsTheRowsAskedFor) {
  auto scoring = arcface(24, 0.5);
  scoring.smoothing = 0.2;
  auto loss = scored_part(scoring);
  loss.score();
  const auto before = loss.scores_of(3, 6);
  EXPECT_EQ(before.numbers.sizes().vec(), (std::vector<int64_t>{4, 3}));
  EXPECT_TRUE(before.target_rows.equal(at::tensor(std::vector<int64_t>{2}, at::kLong)));
  loss.release(0, kRows);
  expect_same(loss.scores_of(3, 6), before);
  loss.release(2, 6);
  expect_same(loss.scores_of(3, 6), before);
  loss.release(3, 6);
  expect_same(loss.scores_of(3, 6), before);
}

TEST(PartLoss, SumsGoInTheirOrder) {
  auto scoring = cosface(24, 0.2);
  for (const double smoothing : {0.0, 0.2}) {
    scoring.smoothing = smoothing;
    auto loss = scored_part(scoring);
    loss.score();
    const auto part = loss.scores_of(0, kRows);
    const auto sums = loss.scores_of(0, kRows).sums();
    ASSERT_EQ(sums.size(), smoothing > 0 ? 4u : 3u);
    EXPECT_TRUE(sums[0].equal(part.of_scores));
    EXPECT_TRUE(sums[1].equal(part.target_rows));
    EXPECT_TRUE(sums[2].equal(part.of_targets));
    EXPECT_EQ(part.evenly.defined(), smoothing > 0);
    if (smoothing > 0) EXPECT_TRUE(sums[3].equal(part.evenly));
  }
}

TEST(PartLoss, CountsTheTargetsOfAllParts) { EXPECT_EQ(scored_part({}).counted(), kRows - 1); }

TEST(PartLoss, NamesATargetThatNoPartHas) {
  const auto features = features_of_all(at::kDouble), weight = weight_of_all(at::kDouble);
  const auto targets = at::tensor(std::vector<int64_t>{0, 6, 3, -1, 7, 3, 2}, at::kLong);
  PartLoss first(features, weight.narrow(0, 0, 3), targets, 0, {}, {});
  PartLoss second(features, weight.narrow(0, 3, 4), targets, 3, {}, {});
  first.score();
  second.score();
  const auto numbers = at::stack({first.scores_of(0, kRows).numbers, second.scores_of(0, kRows).numbers});
  const auto share = targets.ne(-1).to(at::kDouble) / first.counted();
  const auto text = test::text_of<c10::IndexError>([&] { PartsMerge(numbers, targets, share, 0, kClasses); });
  EXPECT_EQ(text,
            "softmax loss: targets[4] is 7, which no rank's classes hold: write -1 to leave a row out, or raise "
            "classes");
  const auto group = comm::make_single_group();
  EXPECT_EQ(text, test::text_of<c10::IndexError>(
                      [&] { sharded_softmax_loss(features, weight, targets, 0, kClasses, {}, *group); }));
}

TEST(PartLoss, ChecksItsArgumentsAsTheWholeLossDoes) {
  const auto features = features_of_all(at::kDouble), targets = targets_of_all();
  const auto text_with = [&](const Tensor& weight, const Scoring& scoring) {
    return test::text_of<c10::Error>([&] { PartLoss(features, weight, targets, 0, scoring, {}); });
  };
  EXPECT_EQ(text_with(at::ones({3, 4}, at::kDouble), {}),
            "softmax loss: features are [7, 5] and weight [3, 4], wanted [N, D] and [C_local, D]");
  EXPECT_EQ(text_with(at::ones({3, kDim}, at::kFloat), {}),
            "softmax loss: features are Double and weight Float, wanted the same");
  EXPECT_EQ(text_with(at::ones({3, kDim}, at::kDouble), cosface(0, 0.2)),
            "softmax loss: scale is 0, wanted a positive number");
}

double relative_error(const Tensor& found, const Tensor& wanted) {
  return (found - wanted).norm().item<double>() / wanted.norm().item<double>();
}

/// A small scale: a product in bfloat16 has eight bits.
TEST(PartLoss, Bfloat16ProductsComeNear) {
  constexpr double kNear = 2e-2;
  auto smooth = plain_softmax(), smooth_margin = cosface(4, 0.2);
  smooth.smoothing = smooth_margin.smoothing = 0.2;
  for (const auto& scoring : {plain_softmax(), smooth, normalised_softmax(4), smooth_margin}) {
    const auto wanted = found_by_one_rank(scoring, at::kFloat);
    for (const int64_t rows : {3, 0}) {
      Parts parts({2, 0, 4, 1}, scoring, {.rows = rows, .bf16 = true}, at::kFloat);
      const auto found = parts.found({0, 3, kRows});
      EXPECT_LT(relative_error(found.loss, wanted.loss), kNear);
      EXPECT_LT(relative_error(found.of_features, wanted.of_features * kFactor), kNear);
      EXPECT_LT(relative_error(found.of_weight, wanted.of_weight * kFactor), kNear);
      EXPECT_LT(relative_error(found.of_weight_twice, wanted.of_weight * (2 * kFactor)), kNear);
    }
  }
}

}  // namespace
}  // namespace tandem::classifier
