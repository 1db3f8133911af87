#include "tandem/base/suggest.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", "abc"), 0);
  EXPECT_EQ(edit_distance("abc", "axc"), 1);
  EXPECT_EQ(edit_distance("abc", "ac"), 1);
  EXPECT_EQ(edit_distance("train", "trian"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("sitting", "kitten"), 3);
}

TEST(Nearest, GivesAllThatTieAndNothingThatIsFar) {
  const std::vector<std::string_view> words = {"sharded", "naive", "softmax", "cosface"};
  EXPECT_EQ(nearest("shard", words), (std::vector<std::string>{"sharded"}));
  EXPECT_EQ(nearest("quite other", words), std::vector<std::string>{});
  EXPECT_EQ(nearest(std::string(100'000, 's'), words), std::vector<std::string>{});
  const std::vector<std::string_view> letters = {"aa", "ab", "ac", "ad"};
  EXPECT_EQ(nearest("ax", letters), (std::vector<std::string>{"aa", "ab", "ac"}));
  EXPECT_EQ(nearest("", letters), std::vector<std::string>{});
  const std::vector<std::string_view> twice = {"ab", "ab"};
  EXPECT_EQ(nearest("ac", twice), (std::vector<std::string>{"ab"}));
}

TEST(DidYouMean, IsAQuestion) {
  EXPECT_EQ(did_you_mean({}), "");
  EXPECT_EQ(did_you_mean({"a"}), "did you mean a?");
  EXPECT_EQ(did_you_mean({"a", "b", "c"}), "did you mean a, b or c?");
}

}  // namespace
}  // namespace tandem
