#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/point_to_point.h"
#include "tandem/comm/wire_bytes.h"
#include "tandem/comm/world.h"

namespace tandem::comm {
namespace {

using Bytes = std::vector<int64_t>;

TEST(WireBytes, EachOperationsClosedForm) {
  const WireBytes first{0, 3}, middle{1, 3}, last{2, 3};
  EXPECT_EQ(middle.broadcast(1, 80), (Bytes{0, 0, 80}));  // 1 to 2 to 0
  EXPECT_EQ(last.broadcast(1, 80), (Bytes{80, 0, 0}));
  EXPECT_EQ(first.broadcast(1, 80), (Bytes{0, 0, 0}));
  EXPECT_EQ(first.reduce_sum(1, 80), (Bytes{0, 0, 80}));  // 0 to 2 to 1
  EXPECT_EQ(last.reduce_sum(1, 80), (Bytes{0, 80, 0}));
  EXPECT_EQ(middle.reduce_sum(1, 80), (Bytes{0, 0, 0}));
  EXPECT_EQ(first.all_reduce(7, 8), (Bytes{0, 40, 40}));  // parts 3, 2, 2: theirs for the sum, mine for the result
  EXPECT_EQ(last.all_reduce(7, 8), (Bytes{40, 32, 0}));
  EXPECT_EQ(last.gather(0, 16), (Bytes{16, 0, 0}));
  EXPECT_EQ(first.gather(0, 16), (Bytes{0, 0, 0}));
  EXPECT_EQ(first.scatter(0, Bytes{24, 16, 8}), (Bytes{0, 16, 8}));
  EXPECT_EQ(last.scatter(0, Bytes{24, 16, 8}), (Bytes{0, 0, 0}));
  EXPECT_EQ(middle.all_gather(16), (Bytes{16, 0, 16}));
  EXPECT_EQ(middle.exchange(Bytes{24, 16, 8}), (Bytes{24, 0, 8}));
  EXPECT_EQ(middle.send(2, 5), (Bytes{0, 0, 5}));
}

TEST(WireBytes, SumsOverRanksAreTheOptimum) {
  for (int n = 1; n <= 5; ++n) {
    int64_t chain = 0, reduced = 0;
    for (int rank = 0; rank < n; ++rank) {
      const auto to_next = WireBytes{rank, n}.broadcast(n / 2, 100), to_all = WireBytes{rank, n}.all_reduce(101, 4);
      chain += std::accumulate(to_next.begin(), to_next.end(), int64_t{0});
      reduced += std::accumulate(to_all.begin(), to_all.end(), int64_t{0});
    }
    EXPECT_EQ(chain, (n - 1) * 100);
    EXPECT_EQ(reduced, 2 * (n - 1) * 404);
  }
}

TEST(WireMeter, CountsPhasesAndPeers) {
  run_ranks(3, [](ProcessGroup& group) {
    const auto x = at::ones({6}, at::kDouble).requires_grad_();
    reduce_scatter(x, group).sum().backward();
    {
      const PhaseScope phase(Phase::optimizer);
      all_reduce(at::ones({3}, at::kDouble), group);
    }
    const auto counts = group.meter().counts();
    const auto phase_of = [&](const char* name, Phase phase) {
      return counts.at(name).phases[static_cast<size_t>(phase)];
    };
    EXPECT_EQ(phase_of("reduce_scatter", Phase::forward), (WireCount{1, 32}));
    EXPECT_EQ(phase_of("all_gather", Phase::backward), (WireCount{1, 32}));
    EXPECT_EQ(phase_of("all_reduce", Phase::optimizer), (WireCount{1, 32}));
    Bytes wanted(3, 16);
    wanted[group.rank()] = 0;
    EXPECT_EQ(counts.at("reduce_scatter").to_rank, wanted);
    EXPECT_EQ(current_context().phase, Phase::forward);
  });
}

TEST(WireMeter, SubGroupsCountForRanksOfTheWorld) {
  run_ranks(4, [](ProcessGroup& world) {
    const auto group = world.split(world.rank() % 2);  // 0 2 and 1 3
    EXPECT_EQ(group->members(), (std::vector<int>{world.rank() % 2, world.rank() % 2 + 2}));
    world.meter().reset();
    if (group->rank() == 0) {
      send(at::ones({5}), 1, *group);
    } else {
      recv(0, *group);
    }
    const auto counts = world.meter().counts();
    if (group->rank() == 0) {
      Bytes wanted(world.rank() + 3, 0);
      wanted[world.rank() + 2] = 20;
      EXPECT_EQ(counts.at("send").to_rank, wanted);
    } else {
      EXPECT_EQ(counts.at("recv").bytes, 0);
    }
  });
}

TEST(Split, ANegativeColourIsInNoGroup) {
  run_ranks(3, [](ProcessGroup& world) {
    const auto group = world.split(world.rank() == 1 ? -1 : 0);
    EXPECT_EQ(group == nullptr, world.rank() == 1);
    EXPECT_EQ(group ? group->size() : 2, 2);
  });
}

}  // namespace
}  // namespace tandem::comm
