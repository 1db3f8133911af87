#include "tandem/comm/segments/stage.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tandem/comm/collectives.h"
#include "tandem/comm/detail/group_calls.h"
#include "tandem/comm/local/local_exchange.h"
#include "tandem/comm/segments/host_meeting.h"
#include "tandem/comm/world.h"
#include "tests/comm/shared_stages.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;

/// A call in which each rank shows a number. Returns the number of `other`.
int exchange(Stage& stage, int rank, int number, int other) {
  stage.announce({.operation = "exchange"});
  std::memcpy(stage.slot(rank, 0), &number, sizeof number);
  stage.meet();
  stage.check_agreement([] { return std::string("exchange"); });
  std::memcpy(&number, stage.slot(other, 0), sizeof number);
  stage.end(1);
  return number;
}

/// The rank that has waited in vain may have more calls to make. Their data must not pass for those of the first.
TEST(Stage, ARankThatComesTooLateReadsNoLaterCall) {
  const auto stages = test::shared_stages(2, milliseconds(20));
  const auto reason = test::failure_of([&] { exchange(*stages[0], 0, 1, 1); });
  EXPECT_EQ(reason, "rank 1 did not come within 20 ms");
  stages[0]->leave(reason);
  for (int later = 2; later < 5; ++later) {
    EXPECT_EQ(test::failure_of([&] { exchange(*stages[0], 0, later, 1); }), reason);
  }
  EXPECT_EQ(exchange(*stages[1], 1, 11, 0), 1);  // rank 0 was there
  EXPECT_EQ(test::failure_of([&] { exchange(*stages[1], 1, 12, 0); }), reason);
}

TEST(Stage, ALimitOfTimeIsForAllRanksTogether) {
  const auto stages = test::shared_stages(4, milliseconds(1000));
  std::vector<std::thread> others;
  for (const auto& [rank, time] : {std::pair(1, 500), std::pair(2, 1250)}) {  // late, and too late
    others.emplace_back([&, rank = rank, time = time] {
      std::this_thread::sleep_for(milliseconds(time));
      test::failure_of([&] { stages[rank]->meet(); });
    });
  }
  EXPECT_EQ(test::failure_of([&] { stages[0]->meet(); }), "rank 2, rank 3 did not come within 1000 ms");
  stages[3]->leave("rank 3 never comes");
  for (auto& other : others) other.join();
}

TEST(Stage, AProcessThatHasEndedIsNamed) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  std::vector<Stage::Member> members;
  for (const pid_t process : {getpid(), child}) {
    members.push_back({std::make_shared<Segment>(Segment::create(Stage::segment_bytes(2))), ProcessWatch(process)});
  }
  Stage stage(0, std::move(members), std::chrono::seconds(60));
  kill(child, SIGKILL);
  EXPECT_EQ(test::failure_of([&] { stage.meet(); }), "the process of rank 1 has ended");
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

/// How many of three ranks have a stage when they have met, `change` having been at their store in between.
int num_stages(const std::function<void(c10d::Store&)>& change) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::atomic<int> count{0};
  run_ranks(3, [&](ProcessGroup& group) {
    HostMeeting meeting(store, group.rank(), group.size());
    barrier(group);
    if (group.rank() == 0) change(*store);
    barrier(group);
    count += meeting.stage(group.calls().backend(), std::chrono::seconds(60)) != nullptr;
    barrier(group);  // nothing is left over from the meeting
  });
  return count;
}

TEST(HostMeeting, AllRanksHaveAStageOrNone) {
  EXPECT_EQ(num_stages([](c10d::Store&) {}), 3);
  EXPECT_EQ(num_stages([](c10d::Store& store) { store.deleteKey("segment/2"); }), 0);
  size_t size = 0;
  num_stages([&](c10d::Store& store) { size = store.get("segment/1").size(); });
  ASSERT_GT(size, 0);
  for (size_t i = 0; i < size; ++i) {  // another host, process, descriptor or segment
    const auto change = [i](c10d::Store& store) {
      auto address = store.get("segment/1");
      address[i] ^= 1;
      store.set("segment/1", address);
    };
    EXPECT_EQ(num_stages(change), 0) << "byte " << i;
  }
}

}  // namespace
}  // namespace tandem::comm
