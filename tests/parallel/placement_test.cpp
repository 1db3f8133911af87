#include "tandem/parallel/placement.h"

#include <gtest/gtest.h>

#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

using test::text_of;

TEST(Placement, OneCopyOfEachPartCounts) {
  EXPECT_TRUE(Placement().counts_on(0));
  EXPECT_FALSE(Placement().counts_on(1));
  EXPECT_TRUE((Placement{.splits = {{0, 0, 1, 2}}}.counts_on(1)));
  const Placement column = {.splits = {{0, 0, 1, 2}}, .split_along = {Axis::tensor}, .behind = {Axis::tensor}};
  EXPECT_TRUE(column.counts_on(1));
  EXPECT_FALSE(column.of_whole().counts_on(1));
  Placement copy = column;
  copy.behind = {Axis::tensor, Axis::data};
  EXPECT_FALSE(copy.counts_on(3));
  EXPECT_TRUE(copy.counts_along({Axis::tensor, Axis::pipeline}));
  EXPECT_TRUE((Placement{.some_along = {Axis::pipeline}}.counts_on(3)));
  EXPECT_FALSE((Placement{.some_along = {Axis::pipeline}, .behind = {Axis::data}}.counts_on(0)));
}

TEST(Placement, SaysAlongWhichAxesOthersHoldTheSame) {
  EXPECT_TRUE(Placement().is_everywhere());
  EXPECT_FALSE((Placement{.splits = {{0, 0, 1, 2}}}.is_replicated_along(kBatchAxes)));
  const Placement column = {.splits = {{0, 0, 1, 2}}, .split_along = {Axis::tensor}};
  EXPECT_TRUE(column.is_replicated_along(kBatchAxes));
  EXPECT_FALSE(column.is_replicated_along({Axis::data, Axis::tensor}));
  const Placement stage = {.some_along = {Axis::pipeline}};
  EXPECT_TRUE(stage.is_replicated_along(kBatchAxes));
  EXPECT_FALSE(stage.is_everywhere());
}

/// The second column of two along tensor, [3, 2] of [3, 4], whose 6 numbers two of three shards divide.
TEST(Placement, APartMayBeDividedAgain) {
  const Placement column = {.splits = {{1, 2, 2, 4}}, .split_along = {Axis::tensor}, .behind = {Axis::tensor}};
  const auto part =
      column.of_box({{1, 0}, {2, 2}}, {3, 2}, {.axis = Axis::shard, .first = 0, .last = 1, .own = 1, .size = 3});
  EXPECT_EQ(part.splits, (std::vector<Split>{{0, 1, 2, 3}, {1, 2, 2, 4}}));
  EXPECT_EQ(part.split_along, (Axes{Axis::shard, Axis::tensor}));
  EXPECT_EQ(part.some_along, Axes{Axis::shard});
  EXPECT_EQ(part.behind, (Axes{Axis::shard, Axis::tensor}));
  EXPECT_TRUE(part.counts_on(3));
  const auto whole =
      column.of_box({{0, 0}, {3, 2}}, {3, 2}, {.axis = Axis::shard, .first = 2, .last = 2, .own = 2, .size = 3});
  EXPECT_EQ(whole.split_along, Axes{Axis::tensor});
  EXPECT_EQ(whole.some_along, Axes{Axis::shard});
  EXPECT_TRUE(whole.counts_on(5));
}

TEST(Placement, SaysWhichElementsOfTheWholeItHolds) {
  const Placement placement = {.splits = {{0, 4, 3, 11}, {2, 1, 2, 5}}};
  EXPECT_EQ(placement.whole_sizes({3, 6, 2}), (std::vector<int64_t>{11, 6, 5}));
  EXPECT_EQ(placement.box({3, 6, 2}), (Box{{4, 0, 1}, {3, 6, 2}}));
  EXPECT_EQ(Placement().box({}), Box());
}

TEST(Placement, FaultsAreNamed) {
  const auto told_for = [](at::IntArrayRef sizes, std::vector<Split> splits) {
    return text_of<c10::ValueError>([&] { check_placement("w", {.splits = std::move(splits)}, sizes); });
  };
  EXPECT_EQ(told_for({3, 2}, {{0, 0, 4, 4}}), "w: shape is [3, 2], wanted 4 along dim 0 as its placement has");
  EXPECT_EQ(told_for({3, 2}, {{1, 0, 3, 4}}), "w: shape is [3, 2], wanted 3 along dim 1 as its placement has");
  EXPECT_EQ(told_for({3, 2}, {{0, 2, 3, 4}}), "w: dim 0 is 2..4, wanted some of 0..3");
  EXPECT_EQ(told_for({3, 2}, {{1, -1, 2, 4}}), "w: dim 1 is -1..0, wanted some of 0..3");
  for (const auto& splits : std::vector<std::vector<Split>>{{{2, 0, 1, 1}}, {{-1, 0, 2, 2}}}) {
    EXPECT_EQ(told_for({3, 2}, splits), "w: shape is [3, 2], split along dim " + std::to_string(splits[0].dim) +
                                            ", wanted its dims in ascending order");
  }
  EXPECT_EQ(told_for({}, {{0, 0, 1, 4}}), "w: shape is [], split along dim 0, wanted its dims in ascending order");
  EXPECT_EQ(told_for({3, 2}, {{1, 0, 2, 2}, {1, 0, 2, 2}}),
            "w: shape is [3, 2], split along dim 1, wanted its dims in ascending order");
}

}  // namespace
}  // namespace tandem::parallel
