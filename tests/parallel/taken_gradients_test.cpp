#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <chrono>
#include <thread>

#include "tandem/comm/world.h"
#include "tandem/parallel/strategy.h"
#include "tests/support/text_of.h"

// Steps that order their backwards themselves: gradients are summed when they are told to be complete.
namespace tandem::parallel {
namespace {

constexpr MicroBatch kEarlier = {.index = 0, .count = 2};
constexpr std::array<int64_t, 3> kSizes = {5, 3, 2};

struct Weight : torch::nn::Module {
  explicit Weight(int64_t size) : weight(register_parameter("weight", at::ones({size}, at::kDouble))) {}

  Tensor weight;
};

/// Blocks that each have a weight, in a bucket of its own.
struct Blocks {
  std::vector<std::shared_ptr<Weight>> modules;
  memory::Chain chain;
  std::vector<Parameter> parameters;

  Blocks() {
    for (size_t i = 0; i < kSizes.size(); ++i) {
      const auto name = "block" + std::to_string(i);
      modules.push_back(std::make_shared<Weight>(kSizes[i]));
      chain.blocks.push_back(memory::make_block(name, {modules[i]}, [](const Tensor& x) { return x; }));
      parameters.push_back(Parameter::replicated(name + ".weight", modules[i]->weight));
    }
  }
  Tensor weight(size_t i) const { return modules[i]->weight; }

  /// Of a rank and block, so that the gradient of each number is this factor.
  static double factor(int rank, size_t i) { return rank + 1 + 10.0 * static_cast<double>(i); }
  void run_backward(int rank, size_t i) const { (weight(i).sum() * factor(rank, i)).backward(); }
};

struct Case {
  Blocks blocks;
  StrategyOptions options;
  Mesh mesh;
  std::unique_ptr<GradientSync> sync;
  std::vector<Parameter> held;

  Case(const Strategy& strategy, comm::ProcessGroup& group)
      : options{.ddp = {.bucket_bytes = 8, .first_bucket_bytes = 8}},
        mesh(strategy.mesh(group.size(), options), group),
        sync(strategy.make({blocks.parameters, {}, &blocks.chain}, mesh, options)),
        held(sync->held(blocks.parameters)) {}

  void begin() const {
    for (const auto& parameter : held) parameter.tensor.mutable_grad().reset();
    sync->before_forward(kEarlier);
    sync->before_backward({}, kEarlier);
  }
};

bool has_travelled(const GradientSync& sync, double before) {
  for (int i = 0; i < 5000; ++i) {
    if (sync.overlap().travelled > before) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST(TakenGradients, TravelWhenTheyAreComplete) {
  for (const auto& strategy : strategies()) {
    const bool sums_in_backward = strategy.divides && *strategy.divides >= Sharded::gradients;
    if (!strategy.takes_gradients || sums_in_backward) continue;
    for (const int ranks : {1, 2, 3, 4}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        const Case own(strategy, group);
        for (int step = 0; step < 3; ++step) {
          own.begin();
          own.blocks.run_backward(group.rank(), 2);
          own.blocks.run_backward(group.rank(), 1);
          const double before = own.sync->overlap().travelled;
          own.sync->start_to_take({own.blocks.weight(2)});
          EXPECT_TRUE(ranks == 1 || has_travelled(*own.sync, before)) << strategy.name;
          own.blocks.run_backward(group.rank(), 0);
          own.blocks.run_backward(group.rank(), 1);
          if (step == 1) own.sync->start_to_take({own.blocks.weight(0), own.blocks.weight(1)});
          own.sync->take_gradients();
          for (const auto& [name, tensor, placement] : own.held) {
            const auto i = static_cast<size_t>(name[5] - '0');
            double sum = 0;
            for (int rank = 0; rank < ranks; ++rank) sum += Blocks::factor(rank, i) * (i == 1 ? 2 : 1);
            EXPECT_TRUE(tensor.grad().equal(at::full_like(tensor, sum))) << strategy.name << ' ' << name << ' ' << step;
          }
          own.sync->after_step();
        }
      });
    }
  }
}

/// No rank waits for one that lacks a gradient of what it says to be complete.
TEST(TakenGradients, AMissingOneIsNamedOnAllRanks) {
  std::vector<std::string> texts(3);
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const Case own(strategy_of("ddp"), group);
    texts[group.rank()] = test::text_of<c10::ValueError>([&] {
      own.begin();
      for (const size_t i : {2, 1, 0}) {
        if (group.rank() != 1 || i != 2) own.blocks.run_backward(group.rank(), i);
        own.sync->start_to_take({own.blocks.weight(i)});
      }
      own.sync->take_gradients();
    });
  });
  for (const auto& text : texts) {
    EXPECT_EQ(text,
              "parameter block2.weight of the model has no gradient after backward on rank 1 of 3, wanted one: use it "
              "in the loss of every step, set find_unused_parameters, or freeze it with requires_grad_(false) before "
              "training");
  }
}

}  // namespace
}  // namespace tandem::parallel
