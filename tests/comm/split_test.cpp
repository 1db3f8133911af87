#include "tandem/comm/split.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tests/support/text_of.h"

namespace tandem::comm {
namespace {

TEST(Split, TheFirstPartsGetOneMore) {
  EXPECT_EQ(split_sizes(20902, 4), (std::vector<int64_t>{5226, 5226, 5225, 5225}));
  EXPECT_EQ(split_sizes(2, 3), (std::vector<int64_t>{1, 1, 0}));
  EXPECT_EQ(split_sizes(0, 2), (std::vector<int64_t>{0, 0}));
}

TEST(Split, RangesFollowEachOther) {
  for (const int parts : {1, 2, 3, 5}) {
    int64_t expected = 0;
    for (int part = 0; part < parts; ++part) {
      const auto [begin, end] = split_range(11, parts, part);
      EXPECT_EQ(begin, expected);
      EXPECT_EQ(end - begin, split_sizes(11, parts)[part]);
      expected = end;
    }
    EXPECT_EQ(expected, 11);
  }
}

TEST(Split, InProportionToWeights) {
  const auto split = [](int64_t n, std::vector<double> weights) { return split_by_weight(n, weights); };
  EXPECT_EQ(split(10, {1, 1, 2}), (std::vector<int64_t>{3, 2, 5}));
  EXPECT_EQ(split(7, {0, 3, 4}), (std::vector<int64_t>{0, 3, 4}));
  EXPECT_EQ(split(5, {1, 1, 1}), (std::vector<int64_t>{2, 2, 1}));
  EXPECT_EQ(split(0, {1, 2}), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(split(1'000'000'007, {8e9, 16e9}), (std::vector<int64_t>{333'333'336, 666'666'671}));
  EXPECT_EQ(test::text_of([&] {
              split(5, {1, -1});
            }),
            "split: weights are [1, -1], wanted numbers of 0 or more, not all 0");
  EXPECT_THROW(split(5, {0, 0}), c10::ValueError);
  EXPECT_THROW(split(5, {}), c10::ValueError);
}

TEST(Split, RejectsNonsense) {
  EXPECT_THROW(split_sizes(-1, 2), c10::ValueError);
  EXPECT_THROW(split_sizes(1, 0), c10::ValueError);
  EXPECT_THROW(split_range(1, 2, 2), c10::IndexError);
}

}  // namespace
}  // namespace tandem::comm
