#include "tandem/comm/text.h"

#include <gtest/gtest.h>

#include "tests/comm/backends.h"

namespace tandem::comm {
namespace {

class Text : public test::OnBackends {};
INSTANTIATE_TEST_SUITE_P(Backends, Text, testing::Bool(), test::backend_name);

std::string text_of_rank(int rank) { return std::string(rank * 1000, 'x') + "汉" + std::string(1, '\0') + "end"; }

TEST_P(Text, OfTheRootReachesAllRanks) {
  for (const int n : {1, 2, 3, 4}) {
    for (int root = 0; root < n; ++root) {
      on_ranks(n, [&](ProcessGroup& group) {
        EXPECT_EQ(broadcast_text(text_of_rank(group.rank()), root, group), text_of_rank(root));
        EXPECT_EQ(broadcast_text("", root, group), "");
      });
    }
  }
}

TEST_P(Text, OfTheLowestRankThatHasOneIsEverybodys) {
  for (const int n : {1, 2, 3, 4}) {
    on_ranks(n, [&](ProcessGroup& group) {
      EXPECT_EQ(first_text("", group), "");
      for (int first = 0; first < n; ++first) {
        const auto own = group.rank() < first ? "" : std::to_string(group.rank());
        EXPECT_EQ(first_text(own, group), std::to_string(first));
      }
    });
  }
}

}  // namespace
}  // namespace tandem::comm
