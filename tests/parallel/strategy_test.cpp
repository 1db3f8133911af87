#include "tandem/parallel/strategy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <functional>
#include <map>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

TEST(Strategy, NamesAreFoundAndOthersNameTheSetting) {
  std::string names;
  for (const auto& strategy : strategies()) {
    EXPECT_EQ(&strategy_of(strategy.name), &strategy);
    names += (names.empty() ? "" : ", ") + std::string(strategy.name);
  }
  EXPECT_EQ(test::text_of<SettingsError>([] { strategy_of("magic"); }), "parallel is 'magic', wanted one of " + names);
}

/// A block that multiplies with its weight.
struct Scaling : torch::nn::Module {
  explicit Scaling(const Tensor& values) : weight(register_parameter("weight", values)) {}

  Tensor weight;
};

memory::Chain chain_of(const std::shared_ptr<Scaling>& scaling) {
  return memory::chain_of("scaling", scaling, [scaling](const Tensor& x) { return scaling->weight * x; });
}

/// The world in which so many share a batch.
int world_of(const Strategy& strategy, int ranks) { return strategy.is_one_process ? 1 : ranks; }

StrategyOptions options_of(int ranks) {
  StrategyOptions options;
  options.dp.replicas = ranks;
  return options;
}

/// Each synchronous strategy leaves, on every rank, the gradient of the whole batch; the split parameter is not its
/// business.
TEST(Strategy, GradientsAreSumsOverRanksAndMicroBatches) {
  for (const auto& strategy : strategies()) {
    if (!strategy.is_synchronous) continue;
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int64_t parts : {1, 2, 3}) {
        comm::run_ranks(world_of(strategy, ranks), [&](comm::ProcessGroup& group) {
          const auto scaling = std::make_shared<Scaling>(at::ones({3}, at::kDouble));
          auto chain = chain_of(scaling);
          const auto own = at::ones({1, 2}).requires_grad_();
          const std::vector<Parameter> parameters = {Parameter::replicated("weight", scaling->weight),
                                                     Parameter::split("own", own, {0, group.rank(), 1, group.size()})};
          Mesh mesh(strategy.mesh(group.size(), options_of(ranks)), group);
          const auto sync = strategy.make({parameters, {}, &chain}, mesh, options_of(ranks));
          const auto held = sync->held(parameters);
          EXPECT_TRUE(sync->is_synchronous()) << strategy.name;
          for (int step = 0; step < 3; ++step) {
            for (int64_t i = 0; i < parts; ++i) {
              const MicroBatch micro{i, parts};
              sync->before_forward(micro);
              const auto factor = static_cast<double>((group.rank() + 1) * (i + 1));
              const auto samples = at::full({4, 3}, factor / 4, at::kDouble);
              const auto loss = memory::run(chain, samples).sum() + own.sum() * (group.rank() + 1.0);
              sync->before_backward(loss, micro);
              loss.backward();
              sync->after_backward(micro);
            }
            const double sum = 0.25 * group.size() * (group.size() + 1) * parts * (parts + 1);
            double numbers = 0;
            for (const auto& parameter : held) {
              if (parameter.name == "own") continue;
              EXPECT_TRUE(parameter.tensor.grad().equal(at::full_like(parameter.tensor, sum))) << strategy.name;
              numbers += static_cast<double>(parameter.tensor.numel());
            }
            const int copies = group.size() / mesh.size(Axis::shard);
            EXPECT_EQ(comm::reduce_number(numbers, comm::Reduce::sum, group), 3 * copies) << strategy.name;
            EXPECT_TRUE(own.grad().equal(at::full({1, 2}, (group.rank() + 1.0) * parts))) << strategy.name;
            for (const auto& parameter : held) parameter.tensor.mutable_grad().reset();
            sync->after_step();
          }
        });
      }
    }
  }
}

TEST(Strategy, TellsWhetherItsRanksTrainApart) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    for (const auto& strategy : strategies()) {
      if (strategy.is_one_process) continue;
      const auto scaling = std::make_shared<Scaling>(at::ones({3}));
      auto chain = chain_of(scaling);
      Mesh mesh(strategy.mesh(group.size(), {}), group);
      const auto sync = strategy.make({{Parameter::replicated("weight", scaling->weight)}, {}, &chain}, mesh, {});
      EXPECT_EQ(sync->is_synchronous(), strategy.is_synchronous) << strategy.name;
    }
    StrategyOptions options;
    options.ddp.hook = &gradient_hook("post-local-sgd");
    options.post_local_sgd.start = 1;
    Mesh mesh({.data = group.size()}, group);
    const auto weight = at::ones({3}).requires_grad_();
    const auto sync = strategy_of("ddp").make({{Parameter::replicated("weight", weight)}}, mesh, options);
    for (const int64_t step : {0, 1, 2}) {
      auto context = current_context();
      context.step = step;
      const ContextScope scope(context);
      sync->before_forward({});
      EXPECT_EQ(sync->is_synchronous(), step == 0);
    }
  });
}

TEST(Strategy, ReplicasOfOneProcessWantAWorldOfOneRank) {
  EXPECT_EQ(test::text_of<SettingsError>([] { strategy_of("dp").mesh(2, {}); }),
            "parallel is dp with 2 ranks in the world, wanted 1, whose replicas are threads of its process: use "
            "parallel=ddp");
}

/// Of parameters and gradients of 12,000 bytes each, and what a rank holds besides one device's.
struct Held {
  int64_t parameters = 0, gradients = 0, optimizer = 0;
};

void expect_held(const Strategy& strategy, int ranks, const StrategyOptions& options,
                 const std::function<Held(int rank)>& wanted) {
  SCOPED_TRACE(std::string(strategy.name) + " ranks " + std::to_string(ranks));
  comm::run_ranks(world_of(strategy, ranks), [&](comm::ProcessGroup& group) {
    const RankScope scope(group.rank());
    const CategoryScope category(Category::parameters);
    const auto scaling = std::make_shared<Scaling>(at::ones({3000}));
    auto chain = chain_of(scaling);
    comm::barrier(group);
    const auto before = memory::account(group.rank()).live;
    Mesh mesh(strategy.mesh(group.size(), options), group);
    const auto sync = strategy.make({{Parameter::replicated("weight", scaling->weight)}, {}, &chain}, mesh, options);
    const auto live = memory::account(group.rank()).live;
    const auto held = [&](Category of) { return live[static_cast<size_t>(of)] - before[static_cast<size_t>(of)]; };
    const auto [parameters, gradients, optimizer] = wanted(group.rank());
    EXPECT_EQ(held(Category::parameters), parameters) << "rank " << group.rank();
    EXPECT_EQ(held(Category::gradients), gradients) << "rank " << group.rank();
    EXPECT_EQ(held(Category::optimizer), optimizer) << "rank " << group.rank();
    EXPECT_EQ(held(Category::communication), 0) << "rank " << group.rank();
    comm::barrier(group);
  });
}

TEST(Strategy, HoldsWhatTheRanksDivideOnce) {
  memory::install_meter();
  const std::map<std::string_view, Held> of_three = {{"ddp", {.gradients = 12000}},
                                                     {"zero1", {.gradients = 12000}},
                                                     {"zero2", {}},
                                                     {"fsdp", {.parameters = 4000 - 12000}},
                                                     {"dp", {}},
                                                     {"ps", {}},
                                                     {"local-sgd", {}},
                                                     {"diloco", {.optimizer = 24000}}};
  for (const auto& strategy : strategies()) {
    const auto held = of_three.at(strategy.name);
    expect_held(strategy, 3, options_of(3), [&](int) { return held; });
    expect_held(strategy, 1, options_of(1), [&](int) { return Held{.optimizer = held.optimizer}; });
  }
}

/// Each worker has its gradients, and those that are late; a server, those that it serves. Where some are late, both
/// have copies of the parameters.
TEST(Strategy, ServersHoldWhatIsLateAndWhatTheyServe) {
  memory::install_meter();
  const std::map<int, int64_t> served_by = {{0, 3000}, {1, 12000}, {2, 6000}};
  for (const auto& [servers, served] : served_by) {
    for (const int64_t staleness : {0, 2}) {
      auto options = options_of(4);
      options.ps = {.servers = servers, .servers_update = true, .staleness = staleness};
      expect_held(strategy_of("ps"), 4, options, [&](int rank) {
        const bool works = rank < 4 - servers, serves = servers == 0 || !works;
        const int64_t replica = works ? 12000 : 0, own = serves ? served : 0;
        return Held{.parameters = staleness > 0 ? replica + own : 0, .gradients = (staleness + 1) * replica + own};
      });
    }
  }
}

}  // namespace
}  // namespace tandem::parallel
