#include "tandem/parallel/mesh.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/detail/group_calls.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

using test::text_of;
using Ranks = std::vector<int>;

TEST(Mesh, TensorVariesFastestThenShardDataPipeline) {
  comm::run_ranks(24, [](comm::ProcessGroup& world) {
    Mesh mesh({.data = 3, .shard = 1, .tensor = 2, .pipeline = 4}, world);
    const int rank = world.rank();
    EXPECT_EQ(mesh.coordinate(Axis::tensor), rank % 2);
    EXPECT_EQ(mesh.coordinate(Axis::shard), 0);
    EXPECT_EQ(mesh.coordinate(Axis::data), rank / 2 % 3);
    EXPECT_EQ(mesh.coordinate(Axis::pipeline), rank / 6);
    for (const auto axis : {Axis::data, Axis::shard, Axis::tensor, Axis::pipeline}) {
      EXPECT_EQ(mesh.group(axis).size(), mesh.size(axis));
      EXPECT_EQ(mesh.group(axis).rank(), mesh.coordinate(axis));
    }
    if (rank != 15) return;  // pipeline 2, data 1, tensor 1
    EXPECT_EQ(mesh.group(Axis::tensor).members(), (Ranks{14, 15}));
    EXPECT_EQ(mesh.group(Axis::data).members(), (Ranks{13, 15, 17}));
    EXPECT_EQ(mesh.group(Axis::pipeline).members(), (Ranks{3, 9, 15, 21}));
  });
}

TEST(Mesh, AGroupOfSeveralAxesIsMadeOnce) {
  comm::run_ranks(12, [](comm::ProcessGroup& world) {
    Mesh mesh({.data = 2, .shard = 3, .tensor = 2}, world);
    auto& both = mesh.group({Axis::data, Axis::shard});
    EXPECT_EQ(both.size(), 6);
    EXPECT_EQ(both.rank(), world.rank() / 2);
    EXPECT_EQ(both.members()[1], 2 + world.rank() % 2);
    EXPECT_EQ(&mesh.group({Axis::shard, Axis::data, Axis::pipeline}), &both);
    EXPECT_EQ(&mesh.group({Axis::pipeline, Axis::tensor}), &mesh.group(Axis::tensor));
    EXPECT_EQ(&mesh.group({Axis::data, Axis::shard, Axis::tensor}), &world);
    const auto sum = comm::all_reduce(at::full({1}, world.rank(), at::kDouble), both);
    EXPECT_EQ(sum.item<double>(), 30 + 6 * (world.rank() % 2));
  });
}

TEST(Mesh, OneAxisOverTheWorldSendsNothing) {
  for (const int ranks : {1, 2, 3, 5}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      Mesh data({.data = ranks}, world), pipeline({.pipeline = ranks}, world);
      EXPECT_EQ(&data.group(Axis::data), &world);
      EXPECT_EQ(&pipeline.group({Axis::tensor, Axis::pipeline}), &world);
      EXPECT_EQ(data.group(Axis::tensor).size(), 1);
      EXPECT_EQ(world.calls().num_calls(), 0);
      EXPECT_TRUE(world.meter().counts().empty());
    });
  }
}

TEST(Mesh, RanksKnowTheGroupsOfTheAxesWithoutAsking) {
  comm::run_ranks(8, [](comm::ProcessGroup& world) {
    Mesh mesh({.data = 2, .shard = 2, .tensor = 2}, world);
    EXPECT_TRUE(world.meter().counts().empty());
    const int rank = world.rank(), tensor = rank % 2, shard = rank / 2 % 2, data = rank / 4;
    EXPECT_EQ(mesh.group(Axis::tensor).members(), (std::vector<int>{rank - tensor, rank - tensor + 1}));
    EXPECT_EQ(mesh.group(Axis::shard).members(), (std::vector<int>{rank - 2 * shard, rank - 2 * shard + 2}));
    EXPECT_EQ(mesh.group(Axis::data).members(), (std::vector<int>{rank - 4 * data, rank - 4 * data + 4}));
    EXPECT_EQ(mesh.group({Axis::data, Axis::tensor}).members(),
              (std::vector<int>{2 * shard, 2 * shard + 1, 2 * shard + 4, 2 * shard + 5}));
  });
}

/// As for the one rank of a large job that is rehearsed.
TEST(Mesh, AnImaginedWorldHasGroupsOfTheRightSizes) {
  const auto world = comm::make_rehearsal_group(5, 6, comm::Transport::memory);
  Mesh mesh({.data = 3, .shard = 2}, *world);
  EXPECT_EQ(mesh.group(Axis::shard).size(), 2);
  EXPECT_EQ(mesh.group(Axis::shard).rank(), 1);
  EXPECT_EQ(mesh.group(Axis::data).members(), (std::vector<int>{1, 3, 5}));
}

TEST(Mesh, FaultsAreNamed) {
  comm::run_ranks(4, [](comm::ProcessGroup& world) {
    EXPECT_EQ(text_of<c10::ValueError>([&] { Mesh({.data = 3, .tensor = 2}, world); }),
              "mesh: data 3 * shard 1 * tensor 2 * pipeline 1 is 6, wanted 4, the number of ranks");
    EXPECT_EQ(text_of<c10::ValueError>([&] { Mesh({.data = 4, .shard = 0}, world); }),
              "mesh: axis shard is 0, wanted 1 or more");
    const Mesh mesh({.data = 2, .tensor = 2}, world);
    EXPECT_EQ(text_of<c10::ValueError>([&] {
                mesh.place({5, 6}, {{.dim = 2, .axis = Axis::data}});
              }),
              "mesh: a cut is along dim 2, wanted a dim of [5, 6]");
    EXPECT_EQ(text_of<c10::ValueError>([&] {
                mesh.place({5, 6}, {{.dim = 0, .axis = Axis::data}, {.dim = 1, .axis = Axis::data}});
              }),
              "mesh: axis data comes twice for one tensor, wanted it once");
    EXPECT_EQ(text_of<c10::ValueError>([&] {
                mesh.place({5, 6}, {{.dim = 0, .axis = Axis::data, .counts = {3, 3}}});
              }),
              "mesh: counts along axis data are [3, 3], wanted 2 that add up to 5, the size of dim 0");
    EXPECT_EQ(text_of<c10::ValueError>([&] {
                mesh.place({5, 6}, {{.dim = 0, .axis = Axis::data}}, Mesh::Only{Axis::data, {0, 1}});
              }),
              "mesh: axis data comes twice for one tensor, wanted it once");
  });
}

TEST(MeshPlace, WithoutCutsEveryRankHoldsAllOfIt) {
  comm::run_ranks(4, [](comm::ProcessGroup& world) {
    const Mesh mesh({.data = 2, .tensor = 2}, world);
    EXPECT_TRUE(mesh.place({5, 6}).is_everywhere());
    EXPECT_TRUE(mesh.place({}, {}, Mesh::Only{Axis::pipeline, {0}}).is_everywhere());  // one stage
    EXPECT_TRUE(mesh.place({5}, {{.dim = 0, .axis = Axis::shard}}).is_everywhere());   // one shard
  });
}

/// data 2, tensor 3: columns 0..2, 3..4, 5..6; ranks 0, 1, 2 hold the first copies.
TEST(MeshPlace, ACutAlongOneAxisIsReplicatedAlongTheOthers) {
  comm::run_ranks(6, [](comm::ProcessGroup& world) {
    const Mesh mesh({.data = 2, .tensor = 3}, world);
    const auto placement = mesh.place({5, 7}, {{.dim = 1, .axis = Axis::tensor}});
    const std::vector<std::vector<Split>> of_columns = {{{1, 0, 3, 7}}, {{1, 3, 2, 7}}, {{1, 5, 2, 7}}};
    EXPECT_EQ(placement.splits, of_columns[world.rank() % 3]);
    EXPECT_EQ(placement.counts_on(world.rank()), world.rank() < 3);
    EXPECT_TRUE(placement.of_whole().is_everywhere());
    const auto uneven = mesh.place({5, 7}, {{.dim = 0, .axis = Axis::data, .counts = {0, 5}}});
    EXPECT_EQ(uneven.splits, (std::vector<Split>{{0, 0, world.rank() < 3 ? 0 : 5, 5}}));
    EXPECT_EQ(uneven.counts_on(world.rank()), world.rank() % 3 == 0);
  });
}

TEST(MeshPlace, ASecondCutOfADimDividesTheFirstOnesPart) {
  comm::run_ranks(4, [](comm::ProcessGroup& world) {
    const Mesh mesh({.shard = 2, .tensor = 2}, world);
    const auto placement = mesh.place({11}, {{.dim = 0, .axis = Axis::tensor}, {.dim = 0, .axis = Axis::shard}});
    const std::vector<Split> by_rank = {{0, 0, 3, 11}, {0, 6, 3, 11}, {0, 3, 3, 11}, {0, 9, 2, 11}};
    EXPECT_EQ(placement.splits, std::vector<Split>{by_rank[world.rank()]});
    EXPECT_TRUE(placement.counts_on(world.rank()));
  });
}

/// A stage of two: only its ranks call place(), and one of them counts.
TEST(MeshPlace, AStagesTensorIsOnlyThere) {
  comm::run_ranks(8, [](comm::ProcessGroup& world) {
    const Mesh mesh({.data = 2, .tensor = 2, .pipeline = 2}, world);
    const Mesh::Only here = {Axis::pipeline, {mesh.coordinate(Axis::pipeline)}};
    const auto bias = mesh.place({5}, {}, here);
    EXPECT_FALSE(bias.is_everywhere());
    EXPECT_EQ(bias.counts_on(world.rank()), world.rank() % 4 == 0);
    const auto weight = mesh.place({5, 7}, {{.dim = 1, .axis = Axis::tensor}}, here);
    EXPECT_EQ(weight.counts_on(world.rank()), world.rank() % 4 < 2);
    EXPECT_EQ(weight.of_whole().counts_on(world.rank()), world.rank() % 4 == 0);
  });
}

/// An embedding that the second and the last stage share: the second stage's copy counts.
TEST(MeshPlace, SeveralStagesMayShareATensor) {
  comm::run_ranks(8, [](comm::ProcessGroup& world) {
    const Mesh mesh({.tensor = 2, .pipeline = 4}, world);
    const Mesh::Only shared = {Axis::pipeline, {1, 3}};
    const auto place = [&] { return mesh.place({5, 7}, {{.dim = 0, .axis = Axis::tensor}}, shared); };
    const int stage = mesh.coordinate(Axis::pipeline);
    if (stage == 0 || stage == 2) {
      EXPECT_EQ(text_of<c10::ValueError>([&] { place(); }), "mesh: coordinate along axis pipeline is " +
                                                                std::to_string(stage) +
                                                                ", wanted one of [1, 3], where the tensor is");
      return;
    }
    EXPECT_EQ(place().counts_on(world.rank()), stage == 1);
    EXPECT_EQ(place().of_whole().counts_on(world.rank()), world.rank() == 2);
  });
}

/// Rank 0 calls the channel while its group waits, the other ranks the other way round: calls of one group alone would
/// meet across, and throw or wait for ever.
TEST(PrivateChannel, CallsOfTwoThreadsNeverMeet) {
  comm::run_ranks(3, [](comm::ProcessGroup& world) {
    Mesh mesh({.data = 3}, world);
    const auto channel = private_channel(mesh.group(Axis::data));
    EXPECT_EQ(channel->members(), world.members());
    EXPECT_EQ(channel->rank(), world.rank());
    const auto run_group = [&] {
      for (int i = 0; i < 40; ++i) {
        const auto sum = comm::all_reduce(at::full({7}, 1.0 * i, at::kDouble), mesh.group(Axis::data));
        EXPECT_TRUE(sum.equal(at::full({7}, 3.0 * i, at::kDouble)));
      }
    };
    const auto run_channel = [&] {
      for (int i = 0; i < 60; ++i)
        EXPECT_TRUE(comm::all_reduce(at::full({4}, i), *channel).equal(at::full({4}, 3 * i)));
    };
    std::thread beside([&, context = current_context()] {
      const ContextScope scope(context);
      world.rank() == 0 ? run_group() : run_channel();
    });
    world.rank() == 0 ? run_channel() : run_group();
    beside.join();
  });
}

/// Ranks 0 and 1, 2 and 3, ... of six differ along tensor, and have one part of a batch.
TEST(MeshSizes, SayWhichRankOfTheBatchARankOfTheWorldIs) {
  const MeshSizes sizes = {.data = 3, .tensor = 2, .pipeline = 2};
  Ranks of_batch;
  for (int rank = 0; rank < sizes.ranks(); ++rank) of_batch.push_back(sizes.number_along(kBatchAxes, rank));
  EXPECT_EQ(of_batch, (Ranks{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(sizes.size(kBatchAxes), 3);
  EXPECT_EQ(sizes.ranks_along(kBatchAxes, 9), (Ranks{7, 9, 11}));
}

}  // namespace
}  // namespace tandem::parallel
