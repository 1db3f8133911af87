#include "tandem/comm/joint_work.h"

#include <ATen/ATen.h>

#include <chrono>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tests/comm/backends.h"
#include "tests/support/text_of.h"

namespace tandem::comm {
namespace {

using test::text_of;

constexpr std::chrono::milliseconds kTimeout{800};

class JointWorks : public test::OnBackends {
 protected:
  static WorldOptions soon() {
    auto with = options();
    with.timeout = kTimeout;
    return with;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, JointWorks, test::kTransports, test::backend_name);

/// Plays a slow disk.
void work_for(std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }

TEST_P(JointWorks, TheSmallestAnswerComesToAll) {
  for (int size = 1; size <= 4; ++size) {
    on_ranks(size, [](ProcessGroup& group) {
      for (int least = 0; least < group.size(); ++least) {
        JointWork work(group);
        EXPECT_EQ(work.end((group.rank() - least + group.size()) % group.size() + 5), 5);
      }
    });
  }
}

TEST_P(JointWorks, WhoWorksForSeveralTimeoutsIsNotLate) {
  for (const int slow : {0, 2}) {
    run_ranks(
        3,
        [&](ProcessGroup& group) {
          JointWork work(group);
          if (group.rank() == slow) work_for(3 * kTimeout);
          EXPECT_EQ(work.end(group.rank() + 7), 7);
          auto sum = at::ones({1});
          all_reduce_(sum, group);
          EXPECT_EQ(sum.item<float>(), 3);
        },
        soon());
  }
}

TEST_P(JointWorks, TheMeterCountsOneExchangeHoweverLongTheWork) {
  const auto counts_after = [](std::chrono::milliseconds time) {
    std::vector<std::map<std::string, OperationCount>> counts(3);
    run_ranks(
        3,
        [&](ProcessGroup& group) {
          JointWork work(group);
          if (group.rank() == 1) work_for(time);
          work.end(0);
          counts[group.rank()] = group.meter().counts();
        },
        soon());
    return counts;
  };
  const auto quick = counts_after({}), slow = counts_after(2 * kTimeout);
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(quick[rank].size(), 1u);
    EXPECT_EQ(quick[rank].at("all_reduce").calls, 1);
    EXPECT_EQ(slow[rank].at("all_reduce").calls, 1);
    EXPECT_EQ(slow[rank].at("all_reduce").bytes, quick[rank].at("all_reduce").bytes);
  }
}

TEST_P(JointWorks, ARankThatDoesNotComeIsNoticedAlsoByWhoWorks) {
  const auto text = text_of([] {
    run_ranks(
        3,
        [](ProcessGroup& group) {
          if (group.rank() == 2) return work_for(2 * kTimeout);  // and makes no call
          JointWork work(group);
          if (group.rank() == 1) work_for(2 * kTimeout);
          work.end(0);
        },
        soon());
  });
  EXPECT_NE(text.find("all_reduce of Long [1] (min) at joint_work_test.cpp:"), std::string::npos) << text;
}

TEST_P(JointWorks, AnAnswerBelowZeroIsRejected) {
  const auto text = text_of([] {
    run_ranks(
        1,
        [](ProcessGroup& group) {
          JointWork work(group);
          work.end(-1);
        },
        options());
  });
  EXPECT_NE(text.find("joint work's answer is -1, wanted 0 or more"), std::string::npos) << text;
}

TEST_P(JointWorks, AllThrowTheErrorOfTheLowestRankThatFails) {
  on_ranks(3, [](ProcessGroup& group) {
    int done = 0;
    jointly(group, [&] { ++done; });
    EXPECT_EQ(done, 1);
    const auto fail = [&] {
      if (group.rank() > 0) throw DataError("file " + std::to_string(group.rank()) + " is empty", "fill it");
    };
    EXPECT_EQ(text_of<DataError>([&] { jointly(group, fail); }), "file 1 is empty (rank 1 of 3): fill it");
  });
}

TEST_P(JointWorks, TheLeadersErrorIsThatOfAll) {
  on_ranks(3, [](ProcessGroup& group) {
    int done = 0;
    on_leader(group, [&] { ++done; });
    EXPECT_EQ(done, group.rank() == 0 ? 1 : 0);
    const auto fail = [] { throw SettingsError("budget is 1, wanted 2", "raise it"); };
    EXPECT_EQ(text_of<SettingsError>([&] { on_leader(group, fail); }), "budget is 1, wanted 2 (rank 0 of 3): raise it");
  });
}

}  // namespace
}  // namespace tandem::comm
