#include "tandem/evaluation/verification.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "tests/evaluation/sets.h"
#include "tests/support/text_of.h"

namespace tandem::evaluation {
namespace {

using tandem::test::text_of;

Tensor flags(const std::vector<bool>& values) {
  return at::tensor(std::vector<int64_t>(values.begin(), values.end()), at::kLong).to(at::kBool);
}

struct Point {
  double far, tar;
};

/// Accept all pairs whose score is not below t, for each score t; none at all first.
std::vector<Point> curve(const std::vector<double>& scores, const std::vector<bool>& same) {
  const std::set<double, std::greater<>> thresholds(scores.begin(), scores.end());
  const auto num_same = double(std::count(same.begin(), same.end(), true)), num = double(same.size());
  std::vector<Point> points = {{0, 0}};
  for (const double threshold : thresholds) {
    double accepted_same = 0, accepted = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
      if (scores[i] < threshold) continue;
      ++accepted, accepted_same += same[i];
    }
    points.push_back({(accepted - accepted_same) / (num - num_same), accepted_same / num_same});
  }
  return points;
}

TEST(TarAtFar, AtMostEqualsTheBestOfAllThresholds) {
  for (const int num_values : {4, 25, 100'000}) {  // many ties, some, none
    std::mt19937 random(3);
    std::vector<double> scores;
    std::vector<bool> same;
    for (int i = 0; i < 180; ++i) {
      same.push_back(random() % 3 == 0);
      scores.push_back(double(random() % num_values + (same.back() ? num_values / 3 : 0)) / num_values);
    }
    const std::vector<double> fars = {0, 1e-3, 0.01, 0.1, 0.29, 0.5, 1};
    const auto tars = tar_at_far(at::tensor(scores, at::kDouble), flags(same), fars);
    for (size_t i = 0; i < fars.size(); ++i) {
      double best = 0;
      for (const auto& point : curve(scores, same))
        if (point.far <= fars[i]) best = std::max(best, point.tar);
      EXPECT_DOUBLE_EQ(tars[i], best) << num_values << " values, rate " << fars[i];
    }
  }
}

/// Falling scores; s: the same, d: different.
std::vector<double> tars_of(const std::string& order, const std::vector<double>& fars, FarPoint point,
                            at::ScalarType dtype = at::kDouble) {
  std::vector<double> scores;
  std::vector<bool> same;
  for (const char kind : order) {
    scores.push_back(-double(scores.size())), same.push_back(kind == 's');
  }
  return tar_at_far(at::tensor(scores, dtype), flags(same), fars, point);
}

TEST(TarAtFar, NearestLooksBothWays) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    // Points (false and true accepts of 4): 00 01 02 12 13 23 33 34 44. Of these 23 is inside a straight piece.
    EXPECT_EQ(tars_of("ssdsddsd", {0, 0.1, 0.2, 0.9}, FarPoint::at_most, dtype),
              (std::vector<double>{0.5, 0.5, 0.5, 1}));
    EXPECT_EQ(tars_of("ssdsddsd", {0, 0.1, 0.2, 0.9}, FarPoint::nearest, dtype),
              (std::vector<double>{0.5, 0.5, 0.75, 1}));
  }
}

TEST(TarAtFar, EquallyNearPointsGiveTheUpperRight) {
  EXPECT_EQ(tars_of("sdsd", {0.25}, FarPoint::nearest), (std::vector<double>{1}));  // between 0 and 0.5
  EXPECT_EQ(tars_of("sdsd", {0.25}, FarPoint::at_most), (std::vector<double>{0.5}));
}

TEST(TarAtFar, NearestTakesCornersOnly) {
  // Points: 00 01 11 21 31 41 42. Of the straight piece 01 .. 41 only the ends count: a rate of 0.7 is nearest to 1.
  EXPECT_EQ(tars_of("sdddds", {0.7, 0.3}, FarPoint::nearest), (std::vector<double>{1, 0.5}));
  EXPECT_EQ(tars_of("sdddds", {0.7, 0.3}, FarPoint::at_most), (std::vector<double>{0.5, 0.5}));
}

/// The numbers that InsightFace's lines find with scikit-learn 1.9's roc_curve.
TEST(TarAtFar, NearestEqualsInsightFace) {
  const std::string kinds = "ddddddsddddsdsddsssddsdsdssdssddsdddsddddssssssdsdssddsddsds";
  const std::vector<double> scores = {11, 12, 0,  17, 13, 11, 18, 18, 0,  14, 1, 11, 19, 12, 3,  7, 20, 17, 22, 11,
                                      16, 14, 14, 9,  18, 17, 15, 1,  19, 8,  6, 10, 22, 19, 11, 4, 16, 8,  17, 2,
                                      9,  16, 15, 11, 8,  10, 15, 15, 11, 1,  8, 25, 17, 12, 7,  7, 19, 17, 8,  20};
  std::vector<bool> same;
  for (const char kind : kinds) same.push_back(kind == 's');
  const auto tars =
      tar_at_far(at::tensor(scores, at::kDouble), flags(same), {0, .01, .05, .1, .2, .3, .5, .7, 1}, FarPoint::nearest);
  std::vector<double> found;
  for (const double tar : tars) found.push_back(std::round(tar * 26));
  EXPECT_EQ(found, (std::vector<double>{5, 5, 6, 6, 10, 15, 20, 25, 26}));
}

TEST(TarAtFar, FaultsAreNamed) {
  const auto scores = at::tensor({0.5f, 0.25f});
  const auto same = flags({true, false});
  EXPECT_EQ(text_of([&] { tar_at_far(same, same, {}); }), "tar at far: scores are Bool, wanted Float or Double");
  EXPECT_EQ(text_of([&] { tar_at_far(scores.unsqueeze(0), same, {}); }), "tar at far: scores are [1, 2], wanted [P]");
  EXPECT_EQ(text_of([&] { tar_at_far(scores, scores, {}); }), "tar at far: same is Float, wanted Bool");
  EXPECT_EQ(text_of([&] { tar_at_far(scores, flags({true}), {}); }), "tar at far: same is [1], wanted [2]");
  EXPECT_EQ(text_of([&] { tar_at_far(scores, same, {0.1, 2}); }), "tar at far: fars[1] is 2, wanted 0..1");
  EXPECT_EQ(text_of([&] {
              tar_at_far(at::tensor({0.5f, NAN}), same, {});
            }),
            "tar at far: scores are not finite, wanted numbers");
  EXPECT_EQ(text_of([&] {
              tar_at_far(scores, flags({true, true}), {});
            }),
            "tar at far: same pairs are 2 of 2, wanted some of both kinds");
}

TEST(Templates, EqualMeansOfMediaSummed) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    // Medium 7 belongs to templates 5 and -3, apart.
    const std::vector<int64_t> templates = {5, -3, 5, 5, -3, 9, 5}, media = {7, 7, 2, 7, 7, 1, 2};
    const auto x = test::draw({test::Kind::normal, dtype, 4, 1}, 7, 1).features;
    const auto made = template_features(x, at::tensor(templates, at::kLong), at::tensor(media, at::kLong));
    const auto unit = [](const Tensor& sum) { return sum / sum.norm(); };
    const auto expected = at::stack({unit((x[1] + x[4]) / 2), unit((x[0] + x[3]) / 2 + (x[2] + x[6]) / 2), unit(x[5])});
    EXPECT_EQ(test::numbers_of(made.ids), (std::vector<int64_t>{-3, 5, 9}));
    EXPECT_EQ(made.features.scalar_type(), dtype);
    EXPECT_TRUE(at::allclose(made.features, expected, dtype == at::kFloat ? 1e-5 : 1e-13, 1e-7));
  }
}

TEST(Templates, ASumOfNothingIsZero) {
  const auto x = at::tensor({1.f, -1.f}).unsqueeze(1);
  const auto made = template_features(x, at::zeros({2}, at::kLong), at::arange(2, at::kLong));
  EXPECT_EQ(made.features.item<float>(), 0);
  const auto none = template_features(at::ones({0, 3}), at::zeros({0}, at::kLong), at::zeros({0}, at::kLong));
  EXPECT_EQ(none.features.sizes(), (std::vector<int64_t>{0, 3}));
}

TEST(Templates, FaultsAreNamed) {
  const auto x = at::ones({2, 3});
  const auto ids = at::zeros({2}, at::kLong);
  EXPECT_EQ(text_of([&] { template_features(ids, ids, ids); }), "templates: features are Long, wanted Float or Double");
  EXPECT_EQ(text_of([&] { template_features(x[0], ids, ids); }), "templates: features are [3], wanted [n, D]");
  EXPECT_EQ(text_of([&] { template_features(x, x, ids); }), "templates: template_ids is Float, wanted Long");
  EXPECT_EQ(text_of([&] { template_features(x, ids, ids.slice(0, 1)); }), "templates: media_ids is [1], wanted [2]");
}

}  // namespace
}  // namespace tandem::evaluation
