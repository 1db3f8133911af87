#pragma once
#include <array>

#include "tandem/parallel/fully_shard.h"
#include "tandem/parallel/strategy.h"
#include "tests/parallel/sharded_model.h"

namespace tandem::parallel {

inline constexpr std::array kShardings = {Sharded::optimizer, Sharded::gradients, Sharded::parameters};

/// A rank's model, divided.
struct Sharding {
  static constexpr double kRate = 0.05;

  ShardedModel model;
  Mesh mesh;
  FullyShard sync;
  std::vector<Parameter> held;

  Sharding(Sharded what, comm::ProcessGroup& group, const FullyShardOptions& options = {})
      : mesh(strategy_of("fsdp").mesh(group.size(), {.fsdp = options}), group),
        sync(model.parameters(), {}, &model.chain, what, mesh, options),
        held(sync.held(model.parameters())) {}

  void forward_and_backward(const Tensor& images, const MicroBatch& micro = {}) {
    sync.before_forward(micro);
    const auto loss = model.loss(images);
    sync.before_backward(loss, micro);
    loss.backward();
    sync.after_backward(micro);
  }

  /// Plain gradient descent on what this rank holds.
  void update() {
    const at::NoGradGuard no_grad;
    for (auto& [name, tensor, placement] : held) {
      if (tensor.grad().defined()) tensor.sub_(tensor.grad(), kRate);
      tensor.mutable_grad().reset();
    }
    sync.after_step();
  }
};

}  // namespace tandem::parallel
