#include "tandem/base/rng.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

namespace tandem {
namespace {

TEST(Rng, PhiloxMatchesThePublishedVectors) {  // kat_vectors of Random123
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, PermutationIsABijection) {
  for (const int64_t n : {1, 2, 3, 5, 16, 17, 1000}) {
    const Permutation permutation(n, 7, 1);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < n; ++i) seen.insert(permutation(i));
    EXPECT_EQ(static_cast<int64_t>(seen.size()), n);
    EXPECT_EQ(*seen.rbegin(), n - 1);
  }
}

TEST(Rng, EpochsAndSeedsGiveOtherOrders) {
  const Permutation first(1000, 1, 0), second(1000, 1, 1), third(1000, 2, 0);
  int same_epoch = 0, same_seed = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    same_epoch += first(i) == second(i);
    same_seed += first(i) == third(i);
  }
  EXPECT_LT(same_epoch, 20);
  EXPECT_LT(same_seed, 20);
}

TEST(Rng, APartGetsTheValuesOfTheWhole) {
  const std::vector<int64_t> sizes = {7, 3, 5, 401};  // more than a thread's share
  const auto normal = at::empty(sizes, at::kDouble), uniform = at::empty(sizes, at::kFloat);
  fill_normal_(normal, 0.5, 11, 3);
  fill_uniform_(uniform, 0.5, 11, 3);
  for (const auto& box : std::vector<Box>{{{0, 0, 0, 0}, {7, 3, 5, 401}},
                                          {{3, 0, 0, 0}, {4, 3, 5, 401}},
                                          {{0, 1, 0, 0}, {7, 2, 5, 401}},
                                          {{2, 1, 3, 0}, {4, 2, 1, 401}},
                                          {{1, 0, 1, 17}, {5, 3, 4, 101}},
                                          {{0, 0, 0, 1}, {7, 3, 5, 1}},
                                          {{6, 2, 4, 400}, {1, 1, 1, 1}},
                                          {{7, 0, 0, 0}, {0, 3, 5, 401}}}) {
    SCOPED_TRACE(to_string(box));
    const auto part = at::empty(box.count, at::kDouble), flat = at::empty(box.count, at::kFloat);
    fill_normal_(part, 0.5, 11, 3, box, sizes);
    fill_uniform_(flat, 0.5, 11, 3, box, sizes);
    EXPECT_TRUE(part.equal(view_of(normal, whole_box(sizes), box)));
    EXPECT_TRUE(flat.equal(view_of(uniform, whole_box(sizes), box)));
  }
}

TEST(Rng, APartThatDoesNotFitIsRefused) {
  const auto fault = [](const Box& box) {
    try {
      fill_normal_(at::empty({2, 3}), 1, 1, 1, box, {4, 3});
    } catch (const c10::ValueError& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string();
  };
  EXPECT_EQ(fault({{2, 0}, {2, 3}}), "");
  EXPECT_EQ(fault({{2, 0}, {1, 3}}), "random fill: tensor is [2, 3], wanted the part's [1, 3]");
  EXPECT_EQ(fault({{4, 0}, {2, 3}}), "random fill: part is [4..5, 0..2], wanted one in [4, 3]");
  EXPECT_EQ(fault({{3, 0}, {2, 3}}), "random fill: part is [3..4, 0..2], wanted one in [4, 3]");
}

TEST(Rng, ANumberIsDrawn) {
  const auto number = at::empty({}, at::kDouble), same = at::empty({1, 1}, at::kDouble);
  fill_normal_(number, 1, 11, 3);
  fill_normal_(same, 1, 11, 3);
  EXPECT_EQ(number.item<double>(), same.item<double>());
}

TEST(Rng, MomentsAreRight) {
  const auto values = at::empty({200000}, at::kDouble);
  fill_normal_(values, 2.0, 1, 1);
  EXPECT_NEAR(values.mean().item<double>(), 0.0, 0.03);
  EXPECT_NEAR(values.std().item<double>(), 2.0, 0.03);
  fill_uniform_(values, 3.0, 1, 1);
  EXPECT_NEAR(values.mean().item<double>(), 0.0, 0.03);
  EXPECT_NEAR(values.abs().max().item<double>(), 3.0, 0.001);
}

TEST(Rng, StreamsAndIndicesDiffer) {
  EXPECT_NE(CounterRng(1, 2, 3).next(), CounterRng(1, 2, 4).next());
  EXPECT_NE(CounterRng(1, 2, 3).next(), CounterRng(1, 3, 3).next());
  EXPECT_EQ(CounterRng(1, 2, 3).next(), CounterRng(1, 2, 3).next());
}

}  // namespace
}  // namespace tandem
