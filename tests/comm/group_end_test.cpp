#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tandem/comm/collectives.h"
#include "tandem/comm/connect.h"
#include "tandem/comm/point_to_point.h"
#include "tandem/comm/world.h"

// What a group leaves behind when it ends.
namespace tandem::comm {
namespace {

TEST(GroupEnd, TheRecordForgetsGroupsWithoutCallsInIt) {
  run_ranks(2, [](ProcessGroup& group) {
    for (int i = 0; i < 600; ++i) barrier(*group.split(0));  // more than the record's 512 calls
    const auto record = nlohmann::json::parse(group.recorder().to_json(""));
    std::set<std::string> called;
    for (const auto& call : record["calls"]) called.insert(call["group"]);
    EXPECT_LE(record["groups"].size(), called.size() + 1) << called.size();
    for (const auto& name : called) EXPECT_EQ(record["groups"][name].size(), 2u) << name;
  });
}

TEST(GroupEnd, ThreadsForgetAGroupWithItsLastRank) {
  constexpr int kRanks = 3;
  const auto world = std::make_shared<LocalWorld>(std::chrono::seconds(20));
  const auto connect = [world](const std::string& name, int rank, int size) {
    return world->connect(name, rank, size);
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      ProcessGroup group(connect, "world", {0, 1, 2}, rank);
      for (int i = 0; i < 50; ++i) {
        const auto part = group.split(rank == 2 ? -1 : i % 2);
        const auto alone = group.split(rank);
        if (part) barrier(*part);
      }
      barrier(group);
      EXPECT_EQ(world->num_groups(), 1);
      barrier(group);
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(world->num_groups(), 0);
}

TEST(GroupEnd, AMessageOutlivesAGroupThatItsReceiverHasNotJoined) {
  const auto world = std::make_shared<LocalWorld>(std::chrono::seconds(20));
  const auto connect = [world](const std::string& name, int rank, int size) {
    return world->connect(name, rank, size);
  };
  {
    ProcessGroup sender(connect, "world", {0, 1}, 0);
    send(at::full({3}, 7.0), 1, sender);
  }
  EXPECT_EQ(world->num_groups(), 1);
  {
    ProcessGroup receiver(connect, "world", {0, 1}, 1);
    EXPECT_TRUE(recv(0, receiver).equal(at::full({3}, 7.0)));
  }
  EXPECT_EQ(world->num_groups(), 0);
}

}  // namespace
}  // namespace tandem::comm
