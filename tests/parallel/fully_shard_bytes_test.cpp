#include <gtest/gtest.h>

#include <optional>

#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tests/parallel/sharding.h"

// What FullyShard sends and holds, to the byte.
namespace tandem::parallel {
namespace {

int64_t padded(int64_t numbers, int shards) { return (numbers + shards - 1) / shards * shards; }

/// Numbers of each block, then of the rest.
constexpr std::array<int64_t, 4> kNumbers = {70, 56, 16, 2};

/// Bytes of float64, each block padded to equal shards.
int64_t padded_bytes(int shards) {
  int64_t numbers = 0;
  for (const auto block : kNumbers) numbers += padded(block, shards);
  return 8 * numbers;
}

/// Bytes that one rank sends in a step of some micro-batches.
int64_t sent_in_step(Sharding& sharding, comm::ProcessGroup& group, int64_t parts) {
  sharding.forward_and_backward(ShardedModel::images(0, group.rank(), group.size()));
  sharding.update();
  sharding.sync.wait();
  group.meter().reset();
  for (int64_t i = 0; i < parts; ++i) {
    sharding.forward_and_backward(ShardedModel::images(1, group.rank(), group.size()), {i, parts});
  }
  sharding.update();
  sharding.sync.wait();
  int64_t bytes = 0;
  for (const auto& [operation, count] : group.meter().counts()) bytes += count.bytes;
  return bytes;
}

TEST(FullyShardBytes, SendsWhatItsTableSays) {
  for (const int ranks : {1, 2, 3, 4}) {
    const int64_t all = padded_bytes(ranks), rest = 8 * padded(2, ranks);
    for (const int64_t parts : {1, 3}) {
      std::map<Sharded, int64_t> expected = {{Sharded::optimizer, 2 * all},
                                             {Sharded::gradients, (parts + 1) * (all - rest) + 2 * rest},
                                             {Sharded::parameters, 3 * parts * (all - rest) + 2 * rest}};
      for (const auto what : kShardings) {
        comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
          Sharding sharding(what, group);
          const auto own = sent_in_step(sharding, group, parts);
          EXPECT_EQ(own * ranks, (ranks - 1) * expected[what]) << ranks << ' ' << parts;
        });
      }
    }
  }
}

TEST(FullyShardBytes, SendsLessIfBlocksStay) {
  const int64_t all = padded_bytes(3), rest = 8 * padded(2, 3);
  for (const bool prefetch : {true, false}) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      Sharding sharding(Sharded::parameters, group, {.reshard = 1, .prefetch = prefetch});
      EXPECT_EQ(sent_in_step(sharding, group, 2) * 3, 2 * (4 * (all - rest) + 2 * rest));
    });
  }
}

/// Forward gathers from four ranks, backward from two.
TEST(FullyShardBytes, SendsLessFarIfNeighboursKeepBlocks) {
  const int64_t all = padded_bytes(4), rest = 8 * padded(2, 4), blocks = all - rest;
  for (const bool prefetch : {true, false}) {
    comm::run_ranks(4, [&](comm::ProcessGroup& group) {
      Sharding sharding(Sharded::parameters, group, {.reshard = 2, .prefetch = prefetch});
      EXPECT_EQ(sent_in_step(sharding, group, 2) * 4, 2 * (3 + 2 + 3) * blocks + 2 * 3 * rest);
    });
  }
}

/// Weights are gathered as bfloat16: half of the bytes. Vectors, and sums of gradients, stay as they are.
TEST(FullyShardBytes, GathersInTheTypeOfProducts) {
  ShardedModel plain(at::kFloat);
  {
    const at::NoGradGuard no_grad;
    for (auto& weight : {plain.conv->weight, plain.middle->weight, plain.last->weight}) {
      weight.copy_(weight.to(at::kBFloat16));
    }
  }
  const auto images = [](int rank) { return ShardedModel::images(0, rank, 4).to(at::kFloat); };
  for (int rank = 0; rank < 4; ++rank) plain.loss(images(rank)).backward();
  std::map<std::string, Tensor> gradients;
  for (const auto& parameter : plain.parameters()) gradients[parameter.name] = parameter.tensor.grad();
  const int64_t factors = padded(63, 4) + padded(49, 4) + padded(14, 4), vectors = 2 * padded(7, 4) + padded(2, 4);
  for (const bool prefetch : {true, false}) {
    for (const int reshard : {0, 2}) {
      comm::run_ranks(4, [&](comm::ProcessGroup& group) {
        ShardedModel model(at::kFloat);
        Mesh mesh({.shard = 4}, group);
        FullyShard sync(model.parameters(), {}, &model.chain, Sharded::parameters, mesh,
                        {.reshard = reshard, .prefetch = prefetch, .gathered = at::kBFloat16});
        const auto held = sync.held(model.parameters());
        group.meter().reset();
        sync.before_forward({});
        model.loss(images(group.rank())).backward();
        sync.after_backward({});
        int64_t bytes = 0;
        for (const auto& [operation, count] : group.meter().counts()) bytes += count.bytes;
        const int64_t first = 3 * (2 * factors + 4 * vectors), again = reshard == 0 ? first : first * 2 / 3;
        EXPECT_EQ(bytes * 4, first + again + 3 * 4 * (factors + vectors) + 2 * 3 * 4 * padded(2, 4));
        for (const auto& [name, tensor, placement] : held) {
          auto expected = gradients.at(name);
          for (const auto& split : placement.splits) expected = expected.narrow(split.dim, split.first, split.count);
          EXPECT_TRUE(at::allclose(tensor.grad(), expected, 1e-5, 1e-6)) << name;
        }
      });
    }
  }
}

/// Bytes of parameters at the highest moment of a step.
TEST(FullyShardBytes, HoldsWholeBlocksWhileTheyRun) {
  memory::install_meter();
  const int64_t conv = 8 * padded(70, 3), middle = 8 * padded(56, 3), last = 8 * padded(16, 3), rest = 8 * padded(2, 3);
  const auto highest = [&](const FullyShardOptions& options) {
    int64_t most = 0;
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      const RankScope scope(group.rank());
      Sharding sharding(Sharded::parameters, group, options);
      std::optional<memory::EventLog> log;
      if (group.rank() == 1) log.emplace(1);
      sharding.forward_and_backward(ShardedModel::images(0, group.rank(), 3));
      if (!log) return;
      int64_t live = (conv + middle + last) / 3 + rest;
      for (const auto& event : log->end()) {
        if (event.category != Category::parameters) continue;
        live += event.what == memory::Event::What::free ? -event.bytes : event.bytes;
        most = std::max(most, live);
      }
    });
    return most;
  };
  const int64_t between = (conv + middle + last) / 3 + rest;
  EXPECT_EQ(highest({.prefetch = false}), between + conv);
  EXPECT_EQ(highest({.prefetch = true}), between + conv + middle);
  EXPECT_EQ(highest({.reshard = 1}), between + conv + middle + last);
}

/// Bytes of gradients at the highest moment of a step: those of a block travel while backward fills the next, and has
/// just made that of the convolution's weight, which then moves to the others.
TEST(FullyShardBytes, HoldsWholeGradientsOfTwoBlocks) {
  memory::install_meter();
  const int64_t conv = 8 * padded(70, 3), middle = 8 * padded(56, 3), last = 8 * padded(16, 3), rest = 8 * padded(2, 3);
  for (const auto what : {Sharded::gradients, Sharded::parameters}) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      constexpr int64_t kMade = 8 * 63;
      const RankScope scope(group.rank());
      Sharding sharding(what, group);
      for (const bool is_first : {true, false}) {
        std::optional<memory::EventLog> log;
        if (group.rank() == 1) log.emplace(1);
        sharding.forward_and_backward(ShardedModel::images(0, group.rank(), 3), {is_first ? 0 : 1, 2});
        if (!log) continue;
        int64_t live = rest + (is_first ? 0 : (conv + middle + last) / 3), most = 0;
        for (const auto& event : log->end()) {
          if (event.category != Category::gradients) continue;
          live += event.what == memory::Event::What::free ? -event.bytes : event.bytes;
          most = std::max(most, live);
        }
        const int64_t sums = (conv + middle + last) / 3;
        EXPECT_EQ(most, rest + (is_first ? sums - conv / 3 : sums) + middle + conv + kMade);
        EXPECT_EQ(live, rest + sums);
      }
    });
  }
}

/// Bytes by category: after construction, and the most of backward besides.
TEST(FullyShardBytes, HoldsWhatItsTableSays) {
  memory::install_meter();
  for (const int ranks : {2, 3, 4}) {
    const int64_t all = padded_bytes(ranks), rest = 8 * padded(2, ranks);
    for (const auto what : kShardings) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        const RankScope scope(group.rank());
        const auto of = [&](Category category) {
          return memory::account(group.rank()).live[static_cast<size_t>(category)];
        };
        Sharding sharding(what, group);
        const bool is_released = what == Sharded::parameters, is_whole = what == Sharded::optimizer;
        EXPECT_EQ(of(Category::parameters), is_released ? (all - rest) / ranks + rest : all);
        EXPECT_EQ(of(Category::gradients), is_whole ? all : rest);
        for (int64_t i = 0; i < 2; ++i) {
          sharding.forward_and_backward(ShardedModel::images(0, group.rank(), ranks), {i, 3});
          EXPECT_EQ(of(Category::parameters), is_released ? (all - rest) / ranks + rest : all);
          EXPECT_EQ(of(Category::gradients), is_whole ? all : (all - rest) / ranks + rest);
        }
        for (const auto& parameter : sharding.held) parameter.tensor.mutable_grad().reset();
        EXPECT_EQ(of(Category::gradients), is_whole ? all : rest);
        comm::barrier(group);
      });
    }
  }
}

}  // namespace
}  // namespace tandem::parallel
