#include "tandem/evaluation/identification.h"

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

IdentificationScores expected_scores(const Samples& probe, const Samples& gallery,
                                     const IdentificationOptions& options) {
  const auto similarities = test::all_similarities(probe, gallery, options.normalise);
  const auto p = numbers_of(probe.identity), g = numbers_of(gallery.identity);
  std::vector<int64_t> places;
  std::vector<double> mates, best_others, non_mated;
  for (size_t i = 0; i < p.size(); ++i) {
    const auto& row = similarities[i];
    double best_other = -kInfinity, mate = -kInfinity;
    size_t mate_at = 0;
    for (size_t j = 0; j < g.size(); ++j) {
      if (g[j] == -1) continue;
      if (g[j] != p[i]) best_other = std::max(best_other, row[j]);
      if (g[j] == p[i] && row[j] > mate) mate = row[j], mate_at = j;
    }
    if (mate == -kInfinity) {
      non_mated.push_back(best_other);
      continue;
    }
    places.push_back(0);
    for (size_t j = 0; j < g.size(); ++j)
      if (g[j] != -1 && g[j] != p[i]) places.back() += row[j] > mate || (row[j] == mate && j < mate_at);
    mates.push_back(mate), best_others.push_back(best_other);
  }
  std::sort(non_mated.rbegin(), non_mated.rend());
  IdentificationScores scores = {.num_mated = int64_t(mates.size()), .num_non_mated = int64_t(non_mated.size())};
  for (const int64_t k : options.top)
    scores.top.push_back(double(std::count_if(places.begin(), places.end(), [k](int64_t at) { return at < k; })) /
                         double(mates.size()));
  for (const double rate : options.fpirs) {
    const double threshold = non_mated[std::max(int(double(non_mated.size()) * rate) - 1, 0)];
    int found = 0;
    for (size_t i = 0; i < mates.size(); ++i) found += mates[i] > threshold && mates[i] > best_others[i];
    scores.threshold.push_back(threshold), scores.tpir.push_back(double(found) / double(mates.size()));
  }
  return scores;
}

void expect_equal(const IdentificationScores& scores, const IdentificationScores& expected, const std::string& where) {
  EXPECT_EQ(scores.top, expected.top) << where;
  EXPECT_EQ(scores.tpir, expected.tpir) << where;
  ASSERT_EQ(scores.threshold.size(), expected.threshold.size()) << where;
  for (size_t i = 0; i < scores.threshold.size(); ++i)
    EXPECT_TRUE(test::is_near(scores.threshold[i], expected.threshold[i])) << where << ", threshold " << i;
  EXPECT_EQ(scores.num_mated, expected.num_mated) << where;
  EXPECT_EQ(scores.num_non_mated, expected.num_non_mated) << where;
}

TEST(Identification, EqualsAMatrixOfAllSimilarities) {
  const IdentificationOptions base = {.top = {1, 5, 10}, .fpirs = {0, 0.01, 0.1, 0.5, 1}, .block_bytes = 9000};
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const auto kind : test::kKinds) {
      for (const bool normalise : {true, false}) {
        const auto probe = test::draw({kind, dtype, 5, 30}, 270, 1), gallery = test::draw({kind, dtype, 5, 20}, 61, 2);
        auto options = base;
        options.normalise = normalise;
        const auto expected = expected_scores(probe, gallery, options);
        ASSERT_GT(expected.num_mated, 0);
        ASSERT_GT(expected.num_non_mated, 0);
        for (int world = 1; world <= 4; ++world) {
          const auto probes = test::uneven_sizes(270, world, world - 1), entries = test::uneven_sizes(61, world, 0);
          comm::run_ranks(world,
                          [&](comm::ProcessGroup& group) {
                            const auto scores = identify(test::part(probe, probes, group.rank()),
                                                         test::part(gallery, entries, group.rank()), options, group);
                            expect_equal(
                                scores, expected,
                                test::name_of({kind, dtype, 5, 0}, normalise) + ", ranks: " + std::to_string(world));
                          },
                          {.threads = 1});
        }
      }
    }
  }
}

Samples line(std::vector<double> features, std::vector<int64_t> identity) {
  return {at::tensor(features, at::kDouble).unsqueeze(1), at::tensor(identity, at::kLong), {}};
}

TEST(Identification, ByHand) {
  const auto group = comm::make_single_group();
  const auto gallery = line({5, 4, 3, 9}, {0, 1, 2, -1});
  // Identity 7, 8 and nobody are non-mated, with highest similarities 5, 10 and 15; 0's mate has 20 and 5, 1's 12.
  const auto probe = line({1, 2, 3, 4, 1, 3}, {7, 8, -1, 0, 0, 1});
  const auto scores = identify(probe, gallery, {.top = {1, 2}, .fpirs = {0, 0.67, 1}, .normalise = false}, *group);
  EXPECT_EQ(scores.num_mated, 3);
  EXPECT_EQ(scores.num_non_mated, 3);
  EXPECT_EQ(scores.top, (std::vector<double>{2.0 / 3, 1}));
  EXPECT_EQ(scores.threshold, (std::vector<double>{15, 10, 5}));
  EXPECT_EQ(scores.tpir, (std::vector<double>{1.0 / 3, 1.0 / 3, 1.0 / 3}));  // 5 is not above 5; 12 is below 15
}

TEST(Identification, ATieIsNotAbove) {
  const auto group = comm::make_single_group();
  const auto scores = identify(line({1, 1}, {0, 1}), line({5, 5}, {0, 1}), {.top = {1}, .fpirs = {0.1}}, *group);
  EXPECT_EQ(scores.top, (std::vector<double>{0.5}));  // the earlier entry is first
  EXPECT_EQ(scores.tpir, (std::vector<double>{0}));
  EXPECT_EQ(scores.threshold, (std::vector<double>{-kInfinity}));  // all probes are mated
}

TEST(Identification, AnEmptyGalleryMatesNobody) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const auto scores = identify({at::ones({2, 3}), at::zeros({2}, at::kLong), {}},
                                 {at::ones({0, 3}), at::zeros({0}, at::kLong), {}}, {.top = {1}, .fpirs = {1}}, group);
    expect_equal(scores, {{0}, {0}, {-kInfinity}, 0, 4}, "");
    EXPECT_EQ(scores.threshold[0], -kInfinity);
  });
}

TEST(Identification, TheMeanOfTwoGalleries) {
  const auto mean = mean_of({{1, 0.5}, {0.25}, {0.5}, 3, 4}, {{0.5, 0.5}, {0.75}, {0.25}, 10, 20});
  expect_equal(mean, {{0.75, 0.5}, {0.5}, {0.375}, 13, 24}, "");
  EXPECT_EQ(text_of([] {
              mean_of({{1}, {1}, {1}, 1, 1}, {{1, 1}, {1}, {1}, 1, 1});
            }),
            "identification: scores of 1 and of 2 settings, wanted the same settings");
}

TEST(Identification, MemoryIsABlockAndNoMatrix) {
  memory::install_meter();
  const auto group = comm::make_single_group();
  const RankScope scope(50);
  const int64_t probes = 500, entries = 10'000, block_bytes = 1 << 20;
  const auto probe = test::draw({Kind::normal, at::kFloat, 8, 500}, probes, 1);
  const auto gallery = test::draw({Kind::normal, at::kFloat, 8, 500}, entries, 2);
  const auto before = memory::account(50).live_bytes();
  memory::reset_peak(50);
  identify(probe, gallery, {.block_bytes = block_bytes}, *group);
  EXPECT_LT(memory::account(50).peak_bytes() - before, block_bytes + 72 * (probes + entries) + (1 << 18));  // not 20 MB
}

TEST(Identification, FaultsAreNamed) {
  const auto group = comm::make_single_group();
  const auto good = line({1}, {0});
  const auto fault = [&](const Samples& probe, const Samples& gallery, const IdentificationOptions& options = {}) {
    return text_of([&] { identify(probe, gallery, options, *group); });
  };
  EXPECT_EQ(fault({at::ones({1}), good.identity, {}}, good), "probe: features are [1], wanted [n, D]");
  EXPECT_EQ(fault(good, {good.features, at::ones({1}), {}}), "gallery: identity is Float, wanted Long");
  EXPECT_EQ(fault(good, good, {.top = {1, 0}}), "identification: top[1] is 0, wanted 1 or more");
  EXPECT_EQ(fault(good, good, {.fpirs = {1.5}}), "identification: fpirs[0] is 1.5, wanted 0..1");
  EXPECT_EQ(fault(good, good, {.block_bytes = -1}), "identification: block_bytes is -1, wanted 1 or more");
}

}  // namespace
}  // namespace tandem::evaluation
