#include "tandem/parallel/replicas/one_process.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tandem/base/context.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/planned_chain.h"
#include "tandem/parallel/data_parallel.h"
#include "tandem/parallel/scatter.h"

namespace tandem::parallel {
namespace {

using memory::Chain;
using memory::Flow;

/// A linear layer as a module whose weight is given.
struct Product : torch::nn::Module {
  explicit Product(const Tensor& of) { weight = register_parameter("weight", of.clone()); }
  Tensor weight;
};

/// Blocks a, b with a shortcut, and c; `seen` is called with each block's name.
struct Model {
  explicit Model(std::function<void(const std::string&, const Tensor&)> seen = [](auto&&...) {}) {
    for (const auto* name : {"a", "b", "c"}) {
      const auto product = std::make_shared<Product>(at::randn({6, 6}, at::kDouble));
      products.push_back(product);
      const bool is_last = std::string(name) == "c";
      chain.blocks.push_back({.name = name, .modules = {product}, .forward = [=](const Flow& flow) {
                                seen(name, flow[0]);
                                const auto y = flow[0].mm(product->weight).tanh();
                                if (is_last) return Flow{y + flow.back()};
                                return Flow{y, flow[0]};
                              }});
    }
  }

  std::vector<Tensor> gradients() {
    std::vector<Tensor> all;
    for (const auto& product : products) {
      all.push_back(product->weight.grad().clone());
      product->weight.mutable_grad().reset();
    }
    return all;
  }

  Chain chain;
  std::vector<std::shared_ptr<Product>> products;
};

struct Threads {
  explicit Threads(int count) : before(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before); }
  int before;
};

TEST(ChainReplicas, EqualOneDeviceWhateverIsPlanned) {
  const auto x = at::randn({7, 6}, at::kDouble);
  Model model;
  const auto expected = memory::run(model.chain, x);
  expected.square().sum().backward();
  const auto gradients = model.gradients();
  for (const int threads : {1, 3}) {
    const Threads own(threads);
    for (const int replicas : {1, 2, 3, 4, 9}) {
      const ChainReplicas runner(&model.chain, replicas);
      for (const auto* plan : {"0-2", "(0-2)", "0 (1-2)", "(0-1) 2", "(0 (1-2))"}) {
        const auto planned = memory::planned_chain(model.chain, memory::parse_plan(plan));
        const auto y = memory::run(planned, x);
        EXPECT_TRUE(y.allclose(expected, 1e-13));
        y.square().sum().backward();
        const auto own_gradients = model.gradients();
        for (size_t i = 0; i < gradients.size(); ++i) {
          EXPECT_TRUE(own_gradients[i].allclose(gradients[i], 1e-12, 1e-13)) << replicas << " replicas, plan " << plan;
        }
      }
    }
  }
  EXPECT_EQ(model.chain.blocks[0].runner, nullptr) << "the chain is as it was";
}

TEST(ChainReplicas, EachPartHasItsContext) {
  std::mutex mutex;
  std::map<int64_t, std::pair<int64_t, BatchStatistics>> seen;  // by the first sample: rows, statistics
  Model model([&](const std::string& name, const Tensor& x) {
    const std::lock_guard lock(mutex);
    const auto context = current_context();
    EXPECT_EQ(block_name(context.block), name);
    seen[context.first_sample] = {x.size(0), context.statistics};
  });
  const Threads own(2);
  const ChainReplicas runner(&model.chain, 4);
  auto context = current_context();
  context.first_sample = 100;
  const ContextScope scope(context);
  memory::run(model.chain, at::randn({5, 6}, at::kDouble));
  const std::map<int64_t, std::pair<int64_t, BatchStatistics>> expected = {{100, {2, BatchStatistics::move}},
                                                                           {102, {1, BatchStatistics::leave}},
                                                                           {103, {1, BatchStatistics::leave}},
                                                                           {104, {1, BatchStatistics::leave}}};
  EXPECT_EQ(seen, expected);
}

/// What is recomputed lies inside the replicas: only the flow at its beginning is kept.
TEST(ChainReplicas, RecomputationFreesWhatReplicasKeep) {
  memory::install_meter();
  const auto x = at::randn({64, 6}, at::kDouble);
  const auto kept = [&](const char* plan) {
    Model model;
    const ChainReplicas runner(&model.chain, 2);
    const auto planned = memory::planned_chain(model.chain, memory::parse_plan(plan));
    const memory::ProbeScope probe;
    const auto y = memory::run(planned, x);
    return probe.account().live_bytes();
  };
  const int64_t flow = 64 * 6 * 8;
  EXPECT_EQ(kept("(0-2)"), flow) << "the result";
  EXPECT_EQ(kept("0-2"), 4 * flow) << "the three tanh and the result";
}

}  // namespace
}  // namespace tandem::parallel
