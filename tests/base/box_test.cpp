#include "tandem/base/box.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/text_of.h"

namespace tandem {
namespace {

TEST(Box, WhatIsInBothAndWhereItLies) {
  const Box rows = {{3, 0}, {4, 6}}, columns = {{0, 2}, {11, 3}};
  EXPECT_EQ(volume(rows), 24);
  EXPECT_EQ(volume(whole_box({})), 1);
  const auto common = intersection(rows, columns);
  EXPECT_EQ(common, (Box{{3, 2}, {4, 3}}));
  EXPECT_EQ(to_string(*common), "[3..6, 2..4]");
  EXPECT_EQ(intersection(rows, {{7, 0}, {4, 6}}), std::nullopt);
  EXPECT_EQ(intersection(rows, {{3, 0}, {0, 6}}), std::nullopt);
  EXPECT_EQ(intersection(whole_box({}), whole_box({})), Box());
  const auto whole = at::arange(66).reshape({11, 6});
  EXPECT_TRUE(view_of(whole.slice(0, 3, 7), rows, *common).equal(whole.slice(0, 3, 7).slice(1, 2, 5)));
}

TEST(Box, ElementsThatLieTogetherAreARun) {
  const Box held = {{2, 0, 1}, {5, 4, 3}};
  EXPECT_EQ(offset_of_run(held, {{3, 0, 1}, {2, 4, 3}}), 12);
  EXPECT_EQ(offset_of_run(held, {{3, 1, 1}, {1, 2, 3}}), 15);
  EXPECT_EQ(offset_of_run(held, {{3, 1, 2}, {1, 1, 2}}), 16);
  EXPECT_EQ(offset_of_run(held, {{3, 1, 1}, {2, 2, 3}}), std::nullopt);
  EXPECT_EQ(offset_of_run(held, {{2, 0, 1}, {5, 4, 1}}), std::nullopt);
  EXPECT_EQ(offset_of_run(held, {{3, 1, 1}, {1, 2, 2}}), std::nullopt);
  EXPECT_EQ(offset_of_run({}, {}), 0);
}

/// Every run, compared with the elements themselves.
TEST(Box, ARunsOffsetIsThatOfItsElements) {
  const auto whole = at::arange(24).reshape({2, 3, 4});
  const auto held = whole_box({2, 3, 4});
  int runs = 0;
  for (int first = 0; first < 24; ++first) {
    for (int last = first; last < 24; ++last) {
      Box box;
      for (const int64_t size : {12, 4, 1}) {
        const int64_t dims = size == 12 ? 2 : size == 4 ? 3 : 4;
        box.first.push_back(std::min(first / size % dims, last / size % dims));
        box.count.push_back(std::max(first / size % dims, last / size % dims) - box.first.back() + 1);
      }
      const auto elements = view_of(whole, held, box).flatten();
      const bool together = (elements[-1] - elements[0]).item<int64_t>() == elements.numel() - 1;
      const auto offset = offset_of_run(held, box);
      ASSERT_EQ(offset.has_value(), together) << to_string(box);
      if (offset) {
        EXPECT_EQ(*offset, elements[0].item<int64_t>());
      }
      runs += together;
    }
  }
  EXPECT_GT(runs, 20);
}

std::string told_of(std::vector<int64_t> sizes, const std::vector<Box>& boxes) {
  std::vector<std::string> places;
  for (size_t i = 0; i < boxes.size(); ++i) places.push_back("part " + std::to_string(i));
  return tiling_fault(sizes, boxes, places).value_or("");
}

TEST(Box, PartsHoldEachElementOnce) {
  EXPECT_EQ(told_of({}, {Box()}), "");
  EXPECT_EQ(told_of({11, 3}, {{{0, 0}, {4, 3}}, {{4, 0}, {0, 3}}, {{4, 0}, {7, 3}}}), "");
  EXPECT_EQ(told_of({4, 7}, {{{2, 3}, {2, 4}}, {{0, 0}, {2, 7}}, {{2, 0}, {2, 3}}}), "");
  EXPECT_EQ(told_of({0, 3}, {{{0, 0}, {0, 3}}, {{0, 0}, {0, 3}}}), "");
  EXPECT_EQ(told_of({11, 3}, {{{0, 0}, {4, 3}}, {{4, 0}, {3, 3}}}), "has 21 elements in all parts, wanted 33");
  EXPECT_EQ(told_of({}, {}), "has 0 elements in all parts, wanted 1");
  EXPECT_EQ(told_of({}, {Box(), Box()}), "has [] in part 0 and in part 1, wanted it in one");
  EXPECT_EQ(told_of({4, 7}, {{{0, 3}, {4, 4}}, {{0, 0}, {2, 4}}}),
            "has [0..1, 3..3] in part 1 and in part 0, wanted it in one");
  EXPECT_EQ(told_of({int64_t{1} << 40, int64_t{1} << 40}, {{{0, 0}, {1, 1}}}),
            "has 1 elements in all parts, wanted more than 2^63");
}

TEST(Box, ARangeOfAFlattenedTensorIsAFewBoxes) {
  EXPECT_EQ(boxes_of_range({4, 5}, 3, 9), (std::vector<Box>{{{0, 3}, {1, 2}}, {{1, 0}, {1, 5}}, {{2, 0}, {1, 2}}}));
  EXPECT_EQ(boxes_of_range({4, 5}, 5, 10), (std::vector<Box>{{{1, 0}, {2, 5}}}));
  EXPECT_EQ(boxes_of_range({}, 0, 1), std::vector<Box>{{}});
  EXPECT_EQ(boxes_of_range({0, 3}, 0, 0), std::vector<Box>());
  EXPECT_EQ(test::text_of<c10::ValueError>([] {
              boxes_of_range({4, 5}, 12, 9);
            }),
            "elements are 12..20, wanted some of the 20 of a tensor of sizes [4, 5]");
}

TEST(Box, EveryRangeComesBackInOrder) {
  const std::vector<int64_t> sizes = {3, 2, 5};
  const auto whole = at::arange(30).reshape(sizes);
  for (int64_t first = 0; first <= 30; ++first) {
    for (int64_t count = 0; count <= 30 - first; ++count) {
      std::vector<Tensor> pieces = {at::empty({0}, at::kLong)};
      for (const auto& box : boxes_of_range(sizes, first, count)) {
        pieces.push_back(view_of(whole, whole_box(sizes), box).flatten());
      }
      EXPECT_LE(pieces.size(), 6u);
      EXPECT_TRUE(at::cat(pieces).equal(at::arange(first, first + count))) << first << " " << count;
    }
  }
}

}  // namespace
}  // namespace tandem
