#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/comm/world.h"
#include "tandem/parallel/strategy.h"
#include "tandem/train/optimizer.h"
#include "tests/parallel/sharded_model.h"
#include "tests/support/python.h"

namespace tandem::train {
namespace {

constexpr int kRanks = 2, kSteps = 10;

/// As tests/oracle/fsdp2.py trains.
void train(const std::string& mode, const parallel::Strategy& strategy, comm::ProcessGroup& group,
           const std::map<std::string, Tensor>& expected) {
  parallel::ShardedModel model(at::kFloat);
  parallel::Mesh mesh(strategy.mesh(kRanks, {}), group);
  const auto sync = strategy.make({model.parameters(), {}, &model.chain}, mesh, {});
  const auto held = sync->held(model.parameters());
  Optimizer optimizer(held, {.momentum = 0.9, .nesterov = true, .weight_decay = 5e-4});
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto own = parallel::ShardedModel::images(step, group.rank(), kRanks).to(at::kFloat);
    const auto parts = mode == "accumulate" ? own.split_with_sizes({2, own.size(0) - 2}) : std::vector<Tensor>{own};
    for (size_t i = 0; i < parts.size(); ++i) {
      const parallel::MicroBatch micro{static_cast<int64_t>(i), static_cast<int64_t>(parts.size())};
      sync->before_forward(micro);
      const auto loss = model.loss(parts[i]);
      sync->before_backward(loss, micro);
      loss.backward();
      sync->after_backward(micro);
    }
    if (mode == "clip") clip_grad_norm(held, 0.5, group);
    optimizer.step(0.02);
    optimizer.zero_grad();
    sync->after_step();
  }
  for (const auto& [name, tensor, placement] : held) {
    auto wanted = expected.at(mode + "/" + name);
    for (const auto& split : placement.splits) wanted = wanted.narrow(split.dim, split.first, split.count);
    EXPECT_TRUE(at::allclose(tensor.detach(), wanted, 1e-6, 1e-6)) << strategy.name << ' ' << mode << ' ' << name;
  }
}

/// Ten steps on two ranks, plain, with clipping and with micro-batches.
TEST(Fsdp2, OfPythonTrainsTheSameWeights) {
  const auto oracle = test::ask_python("fsdp2.py", {});
  if (oracle.missing) GTEST_SKIP() << "no oracle: " << oracle.text;
  for (const std::string parallel : {"ddp", "zero1", "zero2", "fsdp"}) {
    const auto& strategy = parallel::strategy_of(parallel);
    for (const std::string mode : {"plain", "clip", "accumulate"}) {
      comm::run_ranks(kRanks, [&](comm::ProcessGroup& group) { train(mode, strategy, group, oracle.tensors); });
    }
  }
  const auto& plain = oracle.tensors.at("plain/middle.weight");
  EXPECT_GT((plain - oracle.tensors.at("clip/middle.weight")).abs().max().item<double>(), 1e-4) << "nothing is clipped";
}

}  // namespace
}  // namespace tandem::train
