#include "tandem/evaluation/retrieval.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tests/evaluation/sets.h"
#include "tests/support/text_of.h"

namespace tandem::evaluation {
namespace {

using test::Kind;
using test::numbers_of;

/// Adds one query's scores, from its hits and misses in order, as Market-1501's code does: entry by entry.
void add_list(const std::vector<bool>& hits, RetrievalScores& sums) {
  const auto num_hits = double(std::count(hits.begin(), hits.end(), true));
  double old_recall = 0, old_precision = 1, found = 0, precisions = 0, area = 0, last = 0;
  for (size_t i = 0; i < hits.size(); ++i) {
    found += hits[i];
    const double recall = found / num_hits, precision = found / double(i + 1);
    area += (recall - old_recall) * (old_precision + precision) / 2;
    if (hits[i]) precisions += precision, last = double(i + 1);
    if (found > 0 && i < sums.cmc.size()) ++sums.cmc[i];
    old_recall = recall, old_precision = precision;
  }
  for (size_t i = hits.size(); i < sums.cmc.size(); ++i) ++sums.cmc[i];
  sums.mean_ap += precisions / num_hits, sums.mean_ap_trapezoid += area, sums.mean_inp += num_hits / last;
}

RetrievalScores expected_scores(const Samples& query, const Samples& gallery, const RetrievalOptions& options) {
  const auto similarities = test::all_similarities(query, gallery, options.normalise);
  const auto q = numbers_of(query.identity), g = numbers_of(gallery.identity);
  const auto q_camera = numbers_of(query.camera), g_camera = numbers_of(gallery.camera);
  RetrievalScores sums = {.cmc = std::vector<double>(options.max_rank), .num_queries = query.features.size(0)};
  for (size_t i = 0; i < q.size(); ++i) {
    std::vector<size_t> order(g.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return similarities[i][a] > similarities[i][b]; });
    std::vector<bool> hits;
    for (const size_t j : order) {
      const bool is_same_camera = !q_camera.empty() && q_camera[i] == g_camera[j];
      if (g[j] != -1 && !(g[j] == q[i] && is_same_camera)) hits.push_back(g[j] == q[i]);
    }
    if (std::count(hits.begin(), hits.end(), true) == 0) continue;
    add_list(hits, sums);
    ++sums.num_valid;
  }
  for (double* sum : {&sums.mean_ap, &sums.mean_ap_trapezoid, &sums.mean_inp}) *sum /= double(sums.num_valid);
  for (double& share : sums.cmc) share /= double(sums.num_valid);
  return sums;
}

void expect_equal(const RetrievalScores& scores, const RetrievalScores& expected, const std::string& where) {
  EXPECT_NEAR(scores.mean_ap, expected.mean_ap, 1e-12) << where;
  EXPECT_NEAR(scores.mean_ap_trapezoid, expected.mean_ap_trapezoid, 1e-12) << where;
  EXPECT_NEAR(scores.mean_inp, expected.mean_inp, 1e-12) << where;
  EXPECT_EQ(scores.cmc, expected.cmc) << where;
  EXPECT_EQ(scores.num_queries, expected.num_queries) << where;
  EXPECT_EQ(scores.num_valid, expected.num_valid) << where;
}

/// On 1 to 4 ranks, of which one holds no queries and another no gallery.
void expect_oracle(const Samples& query, const Samples& gallery, const RetrievalOptions& options,
                   const std::string& where, int threads = 1) {
  const auto expected = expected_scores(query, gallery, options);
  ASSERT_GT(expected.num_valid, 0) << where;
  for (int world = 1; world <= 4; ++world) {
    const auto queries = test::uneven_sizes(query.features.size(0), world, world - 1);
    const auto entries = test::uneven_sizes(gallery.features.size(0), world, world / 2);
    comm::run_ranks(world,
                    [&](comm::ProcessGroup& group) {
                      const auto scores = retrieve(test::part(query, queries, group.rank()),
                                                   test::part(gallery, entries, group.rank()), options, group);
                      expect_equal(scores, expected, where + ", ranks: " + std::to_string(world));
                    },
                    {.threads = threads});
  }
}

TEST(Retrieval, EqualsAStableSortOfAllSimilarities) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const auto kind : test::kKinds) {
      for (const bool normalise : {true, false}) {
        const test::Recipe recipe = {kind, dtype, 5, 12};
        auto query = test::draw(recipe, 270, 1), gallery = test::draw(recipe, 101, 2);  // two blocks of queries
        const RetrievalOptions options = {.max_rank = 7, .normalise = normalise, .block_bytes = 9000};
        const auto where = test::name_of(recipe, normalise);
        expect_oracle(query, gallery, options, where + " with cameras");
        query.camera = gallery.camera = Tensor();
        expect_oracle(query, gallery, options, where);
      }
    }
  }
}

TEST(Retrieval, SeveralThreadsCountTheSame) {
  const test::Recipe recipe = {Kind::integers, at::kFloat, 6, 40};
  expect_oracle(test::draw(recipe, 90, 1), test::draw(recipe, 1500, 2), {}, "threads", 3);
}

/// A product of matrices rounds a pair by the block's shape and by its place in it; the definition does not.
TEST(Retrieval, CopiesAreTiesWhereverTheyLie) {
  const test::Recipe recipe = {Kind::copies, at::kFloat, 131, 4};
  const auto query = test::draw(recipe, 19, 1), gallery = test::draw(recipe, 203, 2);
  for (const int64_t block_bytes : {1, 700, 5000, 1 << 20})
    expect_oracle(query, gallery, {.block_bytes = block_bytes}, "block_bytes " + std::to_string(block_bytes));
}

TEST(Retrieval, ProductsThatOverflowOrVanishAreWorkedOutByDefinition) {
  for (const double size : {1e30, 1e-30}) {
    const test::Recipe recipe = {Kind::normal, at::kFloat, 6, 5};
    auto query = test::draw(recipe, 20, 1), gallery = test::draw(recipe, 40, 2);
    query.features.mul_(size), gallery.features.mul_(size);
    expect_oracle(query, gallery, {}, "size " + std::to_string(size));
  }
}

Samples line(std::vector<double> features, std::vector<int64_t> identity, std::vector<int64_t> camera) {
  return {at::tensor(features, at::kDouble).unsqueeze(1), at::tensor(identity, at::kLong),
          at::tensor(camera, at::kLong)};
}

TEST(Retrieval, ByHand) {
  const auto group = comm::make_single_group();
  const auto query = line({1, 1, 1}, {3, 0, 8}, {0, 0, 0});
  // For 3: junk (its camera), hit, junk (nobody's), miss, hit. For 0: miss, miss, hit, miss. For 8: only junk.
  const auto gallery = line({9, 8, 7, 6, 5, 4}, {3, 3, -1, 0, 3, 8}, {0, 1, 1, 2, 2, 0});
  const auto scores = retrieve(query, gallery, {.max_rank = 3, .normalise = false}, *group);
  EXPECT_EQ(scores.num_queries, 3);
  EXPECT_EQ(scores.num_valid, 2);
  EXPECT_NEAR(scores.mean_ap, ((1.0 + 2.0 / 3) / 2 + 1.0 / 3) / 2, 1e-15);
  EXPECT_NEAR(scores.mean_ap_trapezoid, ((1.0 + (1.0 / 2 + 2.0 / 3) / 2) / 2 + (0 + 1.0 / 3) / 2) / 2, 1e-15);
  EXPECT_NEAR(scores.mean_inp, (2.0 / 3 + 1.0 / 3) / 2, 1e-15);
  EXPECT_EQ(scores.cmc, (std::vector<double>{0.5, 0.5, 1}));
}

TEST(Retrieval, NothingToFindIsNoFault) {
  for (const int64_t entries : {0, 2}) {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const Samples query = {at::ones({3, 2}), at::full({3}, 5, at::kLong), {}};
      const Samples gallery = {at::ones({entries, 2}), at::full({entries}, 4, at::kLong), {}};
      const auto scores = retrieve(query, gallery, {.max_rank = 2}, group);
      EXPECT_EQ(scores.num_queries, 6);
      EXPECT_EQ(scores.num_valid, 0);
      EXPECT_EQ(scores.mean_ap, 0);
      EXPECT_EQ(scores.cmc, (std::vector<double>{0, 0}));
    });
  }
}

TEST(Retrieval, MemoryIsABlockAndNoMatrix) {
  memory::install_meter();
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const int rank = 40 + group.rank();
    const RankScope scope(rank);
    const int64_t queries = 1000, entries = 10'000, dim = 8, block_bytes = 1 << 20;
    const test::Recipe recipe = {Kind::normal, at::kFloat, dim, 500};
    const auto query = test::draw(recipe, queries, group.rank());
    const auto gallery = test::draw(recipe, entries, 9 + group.rank());
    const auto before = memory::account(rank).live_bytes();
    memory::reset_peak(rank);
    retrieve(query, gallery, {.block_bytes = block_bytes}, group);
    const auto extra = memory::account(rank).peak_bytes() - before;
    EXPECT_LT(extra, block_bytes + 72 * (queries + entries) + (1 << 18));  // similarities of one rank are 80 MB
    EXPECT_GT(extra, block_bytes / 2);
  });
}

using tandem::test::text_of;

TEST(Retrieval, FaultsAreNamed) {
  const auto group = comm::make_single_group();
  const Samples good = {at::ones({2, 3}), at::zeros({2}, at::kLong), {}};
  const auto fault = [&](const Samples& query, const Samples& gallery, const RetrievalOptions& options = {}) {
    return text_of([&] { retrieve(query, gallery, options, *group); });
  };
  const auto ids = good.identity;
  EXPECT_EQ(fault({{}, ids, {}}, good), "query: features are undefined, wanted Float or Double");
  EXPECT_EQ(fault({at::ones({2, 3}, at::kHalf), ids, {}}, good), "query: features are Half, wanted Float or Double");
  EXPECT_EQ(fault(good, {at::ones({2}), ids, {}}), "gallery: features are [2], wanted [n, D]");
  EXPECT_EQ(fault({at::ones({2, 3}).to(at::kMeta), ids, {}}, good), "query: features are on meta, wanted cpu");
  EXPECT_EQ(fault(good, {good.features, at::ones({2}), {}}), "gallery: identity is Float, wanted Long");
  EXPECT_EQ(fault(good, {good.features, at::ones({3}, at::kLong), {}}), "gallery: identity is [3], wanted [2]");
  EXPECT_EQ(fault(good, {good.features, ids.to(at::kMeta), {}}), "gallery: identity is on meta, wanted cpu");
  EXPECT_EQ(fault(good, {good.features, ids, at::ones({5}, at::kLong)}), "gallery: camera is [5], wanted [2]");
  EXPECT_EQ(fault({good.features, at::tensor(std::vector<int64_t>{0, -2}, at::kLong), {}}, good),
            "query: identity[1] is -2, wanted -1 (nobody's) or more");
  EXPECT_EQ(fault({at::tensor({1.f, NAN}).unsqueeze(1), ids, {}}, {at::ones({2, 1}), ids, {}}),
            "query: features[1] have length nan, wanted a finite one");
  EXPECT_EQ(fault(good, good, {.max_rank = 0}), "retrieval: max_rank is 0, wanted 1 or more");
  EXPECT_EQ(fault(good, good, {.block_bytes = 0}), "retrieval: block_bytes is 0, wanted 1 or more");
  EXPECT_EQ(
      fault(good, {at::ones({2, 4}), ids, {}}),
      "samples: set 1 of rank 0 is float32 [n, 4] without cameras, wanted float32 [n, 3] without cameras like the "
      "first set of rank 0");
  EXPECT_EQ(fault({good.features, ids, ids}, good),
            "samples: set 1 of rank 0 is float32 [n, 3] without cameras, wanted float32 [n, 3] with cameras like the "
            "first set of rank 0");
}

TEST(Retrieval, RanksThatDifferAreNamedOnAll) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const auto dtype = group.rank() == 1 ? at::kDouble : at::kFloat;
    const Samples samples = {at::ones({2, 3}, dtype), at::zeros({2}, at::kLong), {}};
    EXPECT_EQ(text_of([&] { retrieve(samples, samples, {}, group); }),
              "samples: set 0 of rank 1 is float64 [n, 3] without cameras, wanted float32 [n, 3] without cameras like "
              "the first set of rank 0");
  });
}

}  // namespace
}  // namespace tandem::evaluation
