#include "tandem/comm/agree.h"

#include <gtest/gtest.h>

#include "tests/comm/backends.h"

namespace tandem::comm {
namespace {

class Agree : public test::OnBackends {};
INSTANTIATE_TEST_SUITE_P(Backends, Agree, test::kTransports, test::backend_name);

std::string text_of_rank(int rank) { return std::string(rank * 1000, 'x') + "汉" + std::string(1, '\0') + "end"; }

TEST_P(Agree, TheRootsTextReachesAllRanks) {
  for (const int n : {1, 2, 3, 4}) {
    for (int root = 0; root < n; ++root) {
      on_ranks(n, [&](ProcessGroup& group) {
        EXPECT_EQ(broadcast_text(text_of_rank(group.rank()), root, group), text_of_rank(root));
        EXPECT_EQ(broadcast_text("", root, group), "");
      });
    }
  }
}

TEST_P(Agree, TheFirstTextIsEverybodys) {
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

TEST_P(Agree, EveryRanksTextIsThereByRank) {
  for (const int n : {1, 2, 3, 4}) {
    on_ranks(n, [&](ProcessGroup& group) {
      std::vector<std::string> wanted;
      for (int rank = 0; rank < n; ++rank) wanted.push_back(rank == 1 ? "" : text_of_rank(rank));
      EXPECT_EQ(gather_texts(wanted[group.rank()], group), wanted);
    });
  }
}

TEST_P(Agree, NumbersAreReducedSentAndGathered) {
  for (const int64_t n : {1, 2, 3, 5}) {
    on_ranks(static_cast<int>(n), [&](ProcessGroup& group) {
      const int64_t own = group.rank() + (int64_t{1} << 60);
      EXPECT_EQ(reduce_number(own, Reduce::max, group), n - 1 + (int64_t{1} << 60));
      EXPECT_EQ(reduce_number(own, Reduce::min, group), int64_t{1} << 60);
      EXPECT_EQ(reduce_number(0.5 * group.rank(), Reduce::sum, group), 0.25 * static_cast<double>(n * (n - 1)));
      EXPECT_EQ(broadcast_number(own, static_cast<int>(n - 1), group), n - 1 + (int64_t{1} << 60));
      const auto all = gather_numbers(own, group);
      ASSERT_EQ(all.size(), static_cast<size_t>(n));
      for (int64_t rank = 0; rank < n; ++rank) EXPECT_EQ(all[rank], rank + (int64_t{1} << 60));
    });
  }
}

}  // namespace
}  // namespace tandem::comm
