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
  EXPECT_FALSE((Placement{.splits = {{0, 0, 1, 2}}, .replica = 1}.counts_on(0)));
  EXPECT_TRUE(Placement{.holder = 0}.counts_on(3));
  EXPECT_FALSE(Placement{.holder = 1}.counts_on(0));
  EXPECT_FALSE(Placement{.holder = 0}.is_everywhere());
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
