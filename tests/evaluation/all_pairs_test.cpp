#include "tandem/evaluation/all_pairs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tests/evaluation/sets.h"
#include "tests/support/text_of.h"

namespace tandem::evaluation {
namespace {

using tandem::test::text_of;
using test::Kind;
using test::numbers_of;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// For each rate: the lowest threshold, among the different pairs' similarities, with few enough of them above it.
AllPairsScores expected_scores(const Samples& samples, const AllPairsOptions& options) {
  const auto similarities = test::all_similarities(samples, samples, options.normalise);
  const auto identity = numbers_of(samples.identity);
  std::vector<double> same, different;
  for (size_t i = 0; i < identity.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (identity[i] != -1 && identity[j] != -1)
        (identity[i] == identity[j] ? same : different).push_back(similarities[i][j]);
  std::sort(different.begin(), different.end());
  AllPairsScores scores = {.num_same = int64_t(same.size()), .num_different = int64_t(different.size())};
  for (const double far : options.fars) {
    double threshold = -kInfinity;
    for (size_t accepted = different.size(), at = 0; double(accepted) / double(different.size()) > far; ++at)
      threshold = different[at],
      accepted = different.end() - std::upper_bound(different.begin(), different.end(), threshold);
    const auto above = std::count_if(same.begin(), same.end(), [&](double x) { return x > threshold; });
    scores.tar.push_back(double(above) / double(same.size())), scores.threshold.push_back(threshold);
  }
  return scores;
}

void expect_oracle(const Samples& samples, const AllPairsOptions& options, const std::string& name, int threads = 1) {
  const auto expected = expected_scores(samples, options);
  ASSERT_GT(expected.num_same, 0);
  for (int world = 1; world <= 4; ++world) {
    const auto sizes = test::uneven_sizes(samples.features.size(0), world, 1);
    const auto where = name + ", ranks: " + std::to_string(world);
    comm::run_ranks(world,
                    [&](comm::ProcessGroup& group) {
                      const auto scores = compare_all_pairs(test::part(samples, sizes, group.rank()), options, group);
                      EXPECT_EQ(scores.tar, expected.tar) << where;
                      EXPECT_EQ(scores.num_same, expected.num_same) << where;
                      EXPECT_EQ(scores.num_different, expected.num_different) << where;
                      ASSERT_EQ(scores.threshold.size(), expected.threshold.size()) << where;
                      for (size_t i = 0; i < options.fars.size(); ++i)
                        EXPECT_TRUE(test::is_near(scores.threshold[i], expected.threshold[i]))
                            << where << ", threshold " << i;
                    },
                    {.threads = threads});
  }
}

TEST(AllPairs, SeveralThreadsCountTheSame) {
  const test::Recipe recipe = {Kind::normal, at::kFloat, 6, 40};
  expect_oracle(test::draw(recipe, 900, 1), {.fars = {1e-3, 0.1}}, "threads", 3);
}

TEST(AllPairs, EqualASortOfAllSimilarities) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const auto kind : test::kKinds) {
      for (const bool normalise : {true, false}) {
        const test::Recipe recipe = {kind, dtype, 5, 10};
        const AllPairsOptions options = {
            .fars = {0, 1e-4, 1e-3, 0.01, 0.29, 0.9, 1}, .normalise = normalise, .num_bins = 100, .block_bytes = 9000};
        expect_oracle(test::draw(recipe, 301, 3), options, test::name_of(recipe, normalise));
      }
    }
  }
}

TEST(AllPairs, ARateThatIsAWholeNumberOfPairsAllowsThem) {
  auto samples = test::draw({Kind::normal, at::kDouble, 3, 1}, 20, 3);
  samples.identity = at::arange(20, at::kLong) % 2;       // 100 different pairs
  expect_oracle(samples, {.fars = {0.29}}, "29 of 100");  // 0.29 * 100 is below 29 in float64
}

TEST(AllPairs, AnyNumberOfBinsWillDo) {
  const test::Recipe recipe = {Kind::normal, at::kFloat, 40, 9};
  for (const int64_t num_bins : {1, 2, 7, 1 << 20})
    expect_oracle(test::draw(recipe, 90, 3), {.fars = {0, 0.01, 0.5}, .num_bins = num_bins}, std::to_string(num_bins));
}

TEST(AllPairs, ProductsThatOverflowOrVanishAreWorkedOutByDefinition) {
  for (const double size : {1e30, 1e-30}) {
    auto samples = test::draw({Kind::normal, at::kFloat, 6, 5}, 40, 1);
    samples.features.mul_(size);
    expect_oracle(samples, {.fars = {0, 0.1}}, std::to_string(size));
  }
}

TEST(AllPairs, SetsWithoutAPair) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const auto alone = at::full({1}, group.rank(), at::kLong), nobody = at::full({1}, -1, at::kLong);
    auto scores = compare_all_pairs({at::ones({1, 2}), alone, {}}, {.fars = {0, 1}}, group);
    EXPECT_EQ(scores.tar, (std::vector<double>{0, 0}));
    EXPECT_EQ(scores.num_different, 1);
    scores = compare_all_pairs({at::ones({1, 2}), nobody, {}}, {.fars = {0}}, group);
    EXPECT_EQ(scores.threshold, (std::vector<double>{-kInfinity}));
    EXPECT_EQ(scores.num_same + scores.num_different, 0);
    scores = compare_all_pairs({at::ones({0, 2}), at::zeros({0}, at::kLong), {}}, {.fars = {0}}, group);
    EXPECT_EQ(scores.tar, (std::vector<double>{0}));
  });
}

TEST(AllPairs, MemoryIsABlockAndNoMatrix) {
  memory::install_meter();
  const auto group = comm::make_single_group();
  const RankScope scope(60);
  const int64_t n = 4000, block_bytes = 1 << 20, num_bins = 1 << 14;
  const auto samples = test::draw({Kind::normal, at::kFloat, 8, 500}, n, 1);
  const auto before = memory::account(60).live_bytes();
  memory::reset_peak(60);
  compare_all_pairs(samples, {.num_bins = num_bins, .block_bytes = block_bytes}, *group);
  EXPECT_LT(memory::account(60).peak_bytes() - before, block_bytes + 72 * n + 8 * num_bins + (1 << 19));  // not 64 MB
}

TEST(AllPairs, FaultsAreNamed) {
  const auto group = comm::make_single_group();
  const Samples good = {at::ones({2, 3}), at::zeros({2}, at::kLong), {}};
  const auto fault = [&](const Samples& samples, const AllPairsOptions& options = {}) {
    return text_of([&] { compare_all_pairs(samples, options, *group); });
  };
  EXPECT_EQ(fault({at::ones({2}), good.identity, {}}), "samples: features are [2], wanted [n, D]");
  EXPECT_EQ(fault({good.features, at::ones({2}), {}}), "samples: identity is Float, wanted Long");
  EXPECT_EQ(fault(good, {.fars = {0.5, -1}}), "all pairs: fars[1] is -1, wanted 0..1");
  EXPECT_EQ(fault(good, {.num_bins = 0}), "all pairs: num_bins is 0, wanted 1 or more");
  EXPECT_EQ(fault(good, {.block_bytes = 0}), "all pairs: block_bytes is 0, wanted 1 or more");
}

}  // namespace
}  // namespace tandem::evaluation
