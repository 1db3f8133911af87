#include "tandem/parallel/fully_shard.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tandem/parallel/strategy.h"
#include "tests/parallel/sharding.h"
#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

using Named = std::map<std::string, Tensor>;

void update_plainly(const ShardedModel& model) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor, placement] : model.parameters()) {
    if (tensor.grad().defined()) tensor.sub_(tensor.grad(), Sharding::kRate);
    tensor.mutable_grad().reset();
  }
}

/// Of a model without ranks after some steps.
Named trained_plainly(int64_t steps) {
  const ShardedModel model;
  for (int64_t step = 0; step < steps; ++step) {
    model.loss(ShardedModel::images(step)).backward();
    update_plainly(model);
  }
  Named weights;
  for (const auto& parameter : model.parameters()) weights[parameter.name] = parameter.tensor.detach();
  return weights;
}

void expect_parts_of(const Named& whole, const std::vector<Parameter>& held, const std::string& what) {
  for (const auto& [name, tensor, placement] : held) {
    auto expected = whole.at(name);
    for (const auto& split : placement.splits) expected = expected.narrow(split.dim, split.first, split.count);
    ASSERT_EQ(tensor.sizes(), expected.sizes());
    EXPECT_TRUE(at::allclose(tensor.detach(), expected, 1e-13, 1e-13)) << what << ' ' << name;
  }
}

TEST(FullyShard, TrainsAsOneDevice) {
  const auto expected = trained_plainly(3);
  for (const auto what : kShardings) {
    for (const int ranks : {1, 2, 3, 4, 5}) {
      for (const bool is_cut : {false, true}) {
        comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
          Sharding sharding(what, group);
          for (int64_t step = 0; step < 3; ++step) {
            const auto own = ShardedModel::images(step, group.rank(), ranks);
            const int64_t half = own.size(0) / 2;
            if (is_cut) sharding.forward_and_backward(own.slice(0, 0, half), {0, 2});
            sharding.forward_and_backward(is_cut ? own.slice(0, half) : own, is_cut ? MicroBatch{1, 2} : MicroBatch{});
            sharding.update();
          }
          expect_parts_of(expected, sharding.held,
                          "level " + std::to_string(static_cast<int>(what)) + " ranks " + std::to_string(ranks));
        });
      }
    }
  }
}

TEST(FullyShard, TrainsTheSameHoweverItGathers) {
  const auto expected = trained_plainly(3);
  for (const int reshard : {0, 1, 2, 4}) {
    for (const bool prefetch : {true, false}) {
      const int ranks = reshard == 1 ? 3 : 4;
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        Sharding sharding(Sharded::parameters, group, {.reshard = reshard, .prefetch = prefetch});
        for (int64_t step = 0; step < 3; ++step) {
          {
            const at::NoGradGuard no_grad;
            sharding.model.loss(ShardedModel::images(0));  // a test between steps
          }
          sharding.model.loss(ShardedModel::images(0));  // a forward without backward
          sharding.forward_and_backward(ShardedModel::images(step, group.rank(), ranks));
          sharding.update();
          EXPECT_EQ(sharding.model.middle->weight.storage().nbytes(), 0u);
        }
        expect_parts_of(expected, sharding.held, "reshard " + std::to_string(reshard));
      });
    }
  }
}

TEST(FullyShard, TrainsAsOneDeviceOverSockets) {
  const auto expected = trained_plainly(3);
  for (const auto what : kShardings) {
    for (const int shard : {0, 2}) {
      comm::run_ranks(4,
                      [&](comm::ProcessGroup& group) {
                        Sharding sharding(what, group, {.shard = shard});
                        for (int64_t step = 0; step < 3; ++step) {
                          sharding.forward_and_backward(ShardedModel::images(step, group.rank(), 4));
                          sharding.update();
                        }
                        expect_parts_of(expected, sharding.held, "sockets");
                      },
                      {.transport = comm::Transport::sockets});
    }
  }
}

/// Two groups of ranks, each of which divides the parameters.
TEST(FullyShard, TrainsAsOneDeviceWithCopiesOfTheShards) {
  const auto expected = trained_plainly(3);
  for (const auto what : kShardings) {
    for (const int shard : {1, 2, 3}) {
      comm::run_ranks(2 * shard, [&](comm::ProcessGroup& group) {
        Sharding sharding(what, group, {.shard = shard});
        for (int64_t step = 0; step < 3; ++step) {
          sharding.forward_and_backward(ShardedModel::images(step, group.rank(), group.size()));
          sharding.update();
        }
        expect_parts_of(expected, sharding.held, "shard " + std::to_string(shard));
      });
    }
  }
}

/// The numbers that count, over all ranks, are those of the model, each once.
TEST(FullyShard, EachNumberCountsOnce) {
  for (const int shard : {1, 2, 4}) {
    comm::run_ranks(4, [&](comm::ProcessGroup& group) {
      const Sharding sharding(Sharded::parameters, group, {.shard = shard});
      double numbers = 0;
      std::map<std::string, Placement> beside;
      for (const auto& [name, tensor, placement] : sharding.held) {
        if (placement.counts_on(group.rank())) numbers += static_cast<double>(tensor.numel());
        const auto [known, is_new] = beside.emplace(name, placement.of_whole());
        EXPECT_EQ(known->second, placement.of_whole()) << name;
      }
      const auto all = comm::all_reduce(at::full({1}, numbers), group).item<double>();
      EXPECT_EQ(all, 70 + 56 + 16 + 2);
    });
  }
}

/// Ranks along other axes hold copies of the parts.
TEST(FullyShard, EachNumberCountsOnceAlongAllAxes) {
  for (const MeshSizes& sizes :
       {MeshSizes{.shard = 2, .tensor = 2}, {.shard = 3, .pipeline = 2}, {.data = 2, .shard = 2, .tensor = 2}}) {
    for (const auto what : kShardings) {
      comm::run_ranks(static_cast<int>(sizes.ranks()), [&](comm::ProcessGroup& group) {
        const ShardedModel model;
        Mesh mesh(sizes, group);
        memory::Chain chain = model.chain;
        const FullyShard sync(model.parameters(), {}, &chain, what, mesh);
        double numbers = 0;
        for (const auto& part : sync.held(model.parameters())) {
          if (part.placement.counts_on(group.rank())) numbers += static_cast<double>(part.tensor.numel());
        }
        EXPECT_EQ(comm::all_reduce(at::full({1}, numbers), group).item<double>(), 70 + 56 + 16 + 2);
      });
    }
  }
}

/// As when the best of several checkpoints is read at the end.
TEST(FullyShard, TrainsOnFromWhatIsLoaded) {
  const auto run = [](Sharded what, comm::Transport transport) {
    const auto body = [&](comm::ProcessGroup& group) {
      Sharding sharding(what, group);
      const auto step = [&](int64_t seed) {
        sharding.forward_and_backward(ShardedModel::images(seed, group.rank(), 3));
        sharding.update();
      };
      step(0);
      std::vector<Tensor> kept;
      for (const auto& part : sharding.held) kept.push_back(part.tensor.detach().clone());
      step(1);
      sharding.sync.wait();
      for (size_t i = 0; i < kept.size(); ++i) sharding.held[i].tensor.detach().copy_(kept[i]);
      sharding.sync.values_replaced();
      step(2);

      Sharding other(what, group);
      other.forward_and_backward(ShardedModel::images(0, group.rank(), 3));
      other.update();
      other.forward_and_backward(ShardedModel::images(2, group.rank(), 3));
      other.update();
      sharding.sync.unify(), other.sync.unify();  // what is in no block may be on its way
      for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(sharding.held[i].tensor.equal(other.held[i].tensor));
      const auto images = ShardedModel::images(3);
      EXPECT_TRUE(sharding.model.loss(images).equal(other.model.loss(images)));
    };
    comm::run_ranks(3, body, {.transport = transport});
  };
  for (const auto what : kShardings) {
    for (const auto transport : {comm::Transport::memory, comm::Transport::sockets}) run(what, transport);
  }
}

/// A block may hand on what it is given, as a flatten of two dims or a dropout in evaluation does.
TEST(FullyShard, ABlockMayDoNothing) {
  const auto expected = trained_plainly(3);
  for (const auto what : kShardings) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      ShardedModel model;
      auto& blocks = model.chain.blocks;
      for (const int64_t place : {3, 2, 1}) {
        blocks.insert(blocks.begin() + place, memory::make_block("nothing", {}, [](const Tensor& x) { return x; }));
      }
      Mesh mesh({.shard = 3}, group);
      FullyShard sync(model.parameters(), {}, &model.chain, what, mesh);
      const auto held = sync.held(model.parameters());
      for (int64_t step = 0; step < 3; ++step) {
        sync.before_forward({});
        const auto loss = model.loss(ShardedModel::images(step, group.rank(), 3));
        sync.before_backward(loss, {});
        loss.backward();
        sync.after_backward({});
        const at::NoGradGuard no_grad;
        for (const auto& part : held) {
          part.tensor.sub_(part.tensor.grad(), Sharding::kRate);
          part.tensor.mutable_grad().reset();
        }
        sync.after_step();
      }
      expect_parts_of(expected, held, "level " + std::to_string(static_cast<int>(what)));
    });
  }
}

TEST(FullyShard, ReleasesABlockWhenItHasRun) {
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    const Sharding sharding(Sharded::parameters, group);
    const auto bytes = [](const torch::nn::Linear& layer) { return layer->weight.storage().nbytes(); };
    const auto& model = sharding.model;
    EXPECT_EQ(bytes(model.middle), 0u);
    const auto hidden = model.chain.blocks[0].forward({ShardedModel::images(0)});
    EXPECT_EQ(bytes(model.middle), 0u);
    model.loss(ShardedModel::images(0)).backward();
    EXPECT_EQ(bytes(model.middle), 0u);
    EXPECT_FALSE(model.middle->weight.grad().defined());
    const at::NoGradGuard no_grad;
    model.loss(ShardedModel::images(0));
    EXPECT_EQ(bytes(model.last), 0u);
  });
}

TEST(FullyShard, FrozenParametersAreDividedWithoutGradients) {
  memory::install_meter();
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    const ShardedModel plain;
    ShardedModel model;
    for (const auto* each : {&plain, static_cast<const ShardedModel*>(&model)}) {
      for (const auto& parameter : each->conv->parameters()) parameter.requires_grad_(false);
      each->middle->weight.requires_grad_(false);
    }
    plain.loss(ShardedModel::images(0)).backward();
    Mesh mesh({.shard = 3}, group);
    FullyShard sync(model.parameters(), {}, &model.chain, Sharded::parameters, mesh);
    const auto held = sync.held(model.parameters());
    sync.before_forward({});
    model.loss(ShardedModel::images(0, group.rank(), 3)).backward();
    sync.after_backward({});
    Named gradients;
    for (const auto& [name, tensor, placement] : plain.parameters()) gradients[name] = tensor.grad();
    for (const auto& [name, tensor, placement] : held) {
      ASSERT_EQ(tensor.grad().defined(), gradients[name].defined()) << name;
      EXPECT_EQ(tensor.requires_grad(), gradients[name].defined()) << name;
      if (!tensor.grad().defined()) continue;
      auto expected = gradients[name];
      for (const auto& split : placement.splits) expected = expected.narrow(split.dim, split.first, split.count);
      EXPECT_TRUE(at::allclose(tensor.grad(), expected, 1e-13, 1e-13)) << name;
    }
    EXPECT_EQ(model.conv->weight.storage().nbytes(), 0u);
  });
}

/// As of two views of an image.
TEST(FullyShard, ABlockMayRunTwice) {
  const ShardedModel plain;
  (plain.loss(ShardedModel::images(0)) + plain.loss(ShardedModel::images(1))).backward();
  update_plainly(plain);
  Named expected;
  for (const auto& parameter : plain.parameters()) expected[parameter.name] = parameter.tensor.detach();
  for (const auto what : kShardings) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      Sharding sharding(what, group);
      sharding.sync.before_forward({});
      const auto loss = sharding.model.loss(ShardedModel::images(0, group.rank(), 3)) +
                        sharding.model.loss(ShardedModel::images(1, group.rank(), 3));
      loss.backward();
      sharding.sync.after_backward({});
      sharding.update();
      expect_parts_of(expected, sharding.held, "twice");
    });
  }
}

/// Rank 1 goes into the backward of the last block only when rank 0 has left it.
TEST(FullyShard, BackwardGoesOnWhileGradientsTravel) {
  const auto expected = trained_plainly(1);
  for (const auto what : kShardings) {
    for (const auto transport : {comm::Transport::memory, comm::Transport::segments, comm::Transport::sockets}) {
      std::promise<void> left;
      const auto has_left = left.get_future().share();
      comm::run_ranks(2,
                      [&](comm::ProcessGroup& group) {
                        Sharding sharding(what, group);
                        auto& model = sharding.model;
                        sharding.sync.before_forward({});
                        const auto images = ShardedModel::images(0, group.rank(), 2);
                        const auto hidden = memory::run({{model.chain.blocks[0], model.chain.blocks[1]}}, images);
                        const auto output = memory::run({{model.chain.blocks[2]}}, hidden);
                        if (group.rank() == 0) hidden.register_hook([&](const Tensor&) { left.set_value(); });
                        if (group.rank() == 1) {
                          output.register_hook([&](const Tensor&) {
                            EXPECT_EQ(has_left.wait_for(std::chrono::seconds(20)), std::future_status::ready);
                          });
                        }
                        (output * model.extra).square().sum().backward();
                        sharding.sync.after_backward({});
                        sharding.update();
                        expect_parts_of(expected, sharding.held, "beside");
                        const auto [travelled, waited] = sharding.sync.overlap();
                        EXPECT_GT(travelled, 0);
                        EXPECT_GT(waited, 0);
                      },
                      {.transport = transport});
    }
  }
}

/// Rank 1 steps only when rank 0 has begun its next forward: what the last block uses arrives meanwhile.
TEST(FullyShard, ForwardGoesOnWhileParametersArrive) {
  const auto expected = trained_plainly(2);
  for (const auto what : {Sharded::optimizer, Sharded::gradients}) {
    std::promise<void> begun;
    const auto has_begun = begun.get_future().share();
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      Sharding sharding(what, group);
      sharding.forward_and_backward(ShardedModel::images(0, group.rank(), 2));
      if (group.rank() == 1) {
        EXPECT_EQ(has_begun.wait_for(std::chrono::seconds(20)), std::future_status::ready);
      }
      sharding.update();
      if (group.rank() == 0) begun.set_value();  // after_step() has returned
      sharding.forward_and_backward(ShardedModel::images(1, group.rank(), 2));
      sharding.update();
      expect_parts_of(expected, sharding.held, "beside forward");
    });
  }
}

/// The model as blocks, and as parts of them, is whole when it runs after a step, whoever runs it.
TEST(FullyShard, BlocksWaitForTheirParameters) {
  const auto expected = trained_plainly(1);
  for (const auto what : kShardings) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      Sharding sharding(what, group);
      sharding.forward_and_backward(ShardedModel::images(0, group.rank(), 3));
      sharding.update();
      const ShardedModel plain;
      {
        const at::NoGradGuard no_grad;
        for (const auto& parameter : plain.parameters()) parameter.tensor.copy_(expected.at(parameter.name));
        const auto images = ShardedModel::images(4);
        EXPECT_TRUE(at::allclose(memory::run(sharding.model.chain, images), memory::run(plain.chain, images), 1e-12));
      }
      sharding.sync.unify();
      expect_parts_of(expected, sharding.held, "after a test");
    });
  }
}

/// Sums run in the order of the blocks, so that ranks may leave different parameters out.
TEST(FullyShard, ARankMayLeaveABlockOut) {
  const ShardedModel plain;
  const auto loss = [](const ShardedModel& model, int rank) {
    const auto& blocks = model.chain.blocks;
    const auto used = rank == 1 ? memory::Chain{{blocks[0], blocks[2]}} : model.chain;
    const auto output = memory::run(used, ShardedModel::images(0, rank, 3));
    return (rank == 2 ? output : output * model.extra).square().sum();
  };
  for (int rank = 0; rank < 3; ++rank) loss(plain, rank).backward();
  update_plainly(plain);
  Named expected;
  for (const auto& parameter : plain.parameters()) expected[parameter.name] = parameter.tensor.detach();
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    Sharding sharding(Sharded::optimizer, group);
    sharding.sync.before_forward({});
    loss(sharding.model, group.rank()).backward();
    sharding.sync.after_backward({});
    sharding.update();
    expect_parts_of(expected, sharding.held, "left out");
  });
}

TEST(FullyShard, OneBackwardAMicroBatch) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    Sharding sharding(Sharded::optimizer, group);
    sharding.forward_and_backward(ShardedModel::images(0));
    sharding.update();
    sharding.sync.before_forward({});
    sharding.model.loss(ShardedModel::images(0)).backward();
    const auto text = test::text_of<c10::Error>([&] { sharding.model.loss(ShardedModel::images(0)).backward(); });
    EXPECT_EQ(text.find("fully shard: a gradient comes again after its sum has begun, wanted one backward a "
                        "micro-batch"),
              0U)
        << text;
    sharding.sync.after_backward({});
  });
}

/// In forward of one step and in backward of the next.
TEST(FullyShard, AStepMayFollowAnException) {
  const auto expected = trained_plainly(1);
  for (const auto what : kShardings) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      Sharding sharding(what, group);
      const auto images = ShardedModel::images(0, group.rank(), 3);
      auto& model = sharding.model;
      sharding.sync.before_forward({});
      EXPECT_THROW(model.loss(images.narrow(2, 0, 2)), c10::Error);
      const auto loss = [&] {
        const auto hidden = memory::run({{model.chain.blocks[0], model.chain.blocks[1]}}, images);
        if (hidden.requires_grad()) {
          hidden.register_hook([](const Tensor&) { throw std::runtime_error("a bad day"); });
        }
        return memory::run({{model.chain.blocks[2]}}, hidden).sum();
      }();
      EXPECT_THROW(loss.backward(), std::runtime_error);
      for (const auto& parameter : sharding.held) parameter.tensor.mutable_grad().reset();
      sharding.forward_and_backward(images);
      sharding.update();
      expect_parts_of(expected, sharding.held, "after an exception");
    });
  }
}

TEST(FullyShard, RefusesWhatItCannotDo) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    ShardedModel twice;
    twice.chain.blocks.push_back(memory::make_block("again", {twice.middle.ptr()}, [](const Tensor& x) { return x; }));
    Mesh mesh({.shard = 2}, group);
    EXPECT_EQ(test::text_of<c10::ValueError>(
                  [&] { FullyShard(twice.parameters(), {}, &twice.chain, Sharded::gradients, mesh); }),
              "fully shard: a parameter of sizes [7, 7] is in the blocks middle and again, wanted it in one");
    const auto empty = Parameter::replicated("empty", at::zeros({0, 2}).requires_grad_());
    EXPECT_EQ(test::text_of<c10::ValueError>([&] { FullyShard({empty}, {}, nullptr, Sharded::gradients, mesh); }),
              "fully shard: empty is empty, wanted numbers to divide: freeze it with requires_grad_(false)");
    Sharding sharding(Sharded::parameters, group);
    const auto text = test::text_of<c10::Error>([&] {
      sharding.model.loss(ShardedModel::images(0)).backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    });
    EXPECT_EQ(
        text.find("fully shard: the gradient of last.weight has left the memory that it was given, wanted backward "
                  "without create_graph and without a change of .grad"),
        0u)
        << text;
  });
}

TEST(FullyShard, BuffersAndWeightsAreThoseOfRankZero) {
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    ShardedModel model;
    const at::NoGradGuard no_grad;
    model.last->bias.fill_(group.rank() + 1.0);
    const auto buffer = at::full({2}, group.rank() + 5.0);
    Mesh mesh({.shard = 3}, group);
    FullyShard sync(model.parameters(), {buffer}, &model.chain, Sharded::gradients, mesh);
    EXPECT_TRUE(model.last->bias.eq(1).all().item<bool>());
    EXPECT_TRUE(buffer.eq(5).all().item<bool>());
    buffer.fill_(group.rank() + 7.0);
    sync.unify();
    EXPECT_TRUE(buffer.eq(7).all().item<bool>());
  });
}

TEST(FullyShard, TheRanksOfAShardMustDivideTheRanks) {
  EXPECT_EQ(
      test::text_of<SettingsError>([] { strategy_of("fsdp").mesh(4, {.fsdp = {.shard = 3}}); }),
      "shard is 3 with 4 ranks, wanted a number that divides them: set shard=0 to divide the parameters among all "
      "ranks");
  EXPECT_EQ(strategy_of("fsdp").mesh(6, {.fsdp = {.shard = 3}}).data, 2);
  EXPECT_EQ(strategy_of("zero2").mesh(6, {}).shard, 6);
}

}  // namespace
}  // namespace tandem::parallel
