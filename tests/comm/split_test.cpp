#include "tandem/comm/split.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

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

TEST(Split, RejectsNonsense) {
  EXPECT_THROW(split_sizes(-1, 2), c10::ValueError);
  EXPECT_THROW(split_sizes(1, 0), c10::ValueError);
  EXPECT_THROW(split_range(1, 2, 2), c10::IndexError);
}

}  // namespace
}  // namespace tandem::comm
