// One process, three replicas: each takes a part of the batch on a thread of its own, and returns the loss of its part.
// Then the same by the functions that DataParallel is made of.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

#include "tandem/comm/run_main.h"
#include "tandem/parallel/data_parallel.h"
#include "tandem/parallel/nested.h"
#include "tandem/parallel/parallel_apply.h"
#include "tandem/parallel/replica_threads.h"
#include "tandem/parallel/replicate.h"
#include "tandem/parallel/scatter.h"

using namespace tandem;

struct Regression : torch::nn::Cloneable<Regression> {
  Regression() { reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(8, 1)); }
  parallel::Nested forward(const parallel::Nested& batch) {
    return at::mse_loss(linear(batch["x"].tensor()), batch["y"].tensor());
  }

  torch::nn::Linear linear = nullptr;
};

/// The loss of the whole batch, of a module that all replicas share: it writes to nothing.
Tensor loss_by_hand(Regression& module, const parallel::Nested& batch, parallel::ReplicaThreads& threads) {
  const std::vector<c10::Device> devices(3, c10::DeviceType::CPU);
  const auto parts = parallel::scatter(batch, devices, {.sizes = {5, 1, 4}});
  const auto forward = [&](int, const parallel::Nested& part) { return module.forward(part); };
  const auto losses = parallel::parallel_apply(forward, parts, {module.parameters()}, threads);
  return parallel::gather(losses, devices[0], {.scalars = parallel::Scalars::mean, .sizes = {5, 1, 4}}).tensor();
}

void run() {
  const auto module = std::make_shared<Regression>();
  TORCH_CHECK(parallel::replicate(module, 3)[2]->parameters()[0].is_alias_of(module->linear->weight), "no copies");
  parallel::DataParallel model(module, {.devices = {3, c10::DeviceType::CPU}, .scalars = parallel::Scalars::mean});
  const auto x = at::randn({10, 8}), y = x.sum(1, true);
  const parallel::Nested batch(parallel::Nested::Map{{"x", x}, {"y", y}});
  Tensor loss;
  for (int step = 0; step < 200; ++step) {
    loss = model.forward(batch).tensor();  // the mean of the whole batch
    loss.backward();
    const at::NoGradGuard no_grad;
    for (auto& weight : module->parameters()) {
      weight.sub_(0.1 * weight.grad());
      weight.mutable_grad().reset();
    }
  }
  const auto alone = module->forward(batch).tensor();

  parallel::ReplicaThreads threads(/*threads=*/3, /*intra_op=*/3);
  const auto by_hand = loss_by_hand(*module, batch, threads);
  by_hand.backward();
  std::printf("loss of the last step %.2e, and after it %.2e\n", loss.item<double>(), by_hand.item<double>());
  TORCH_CHECK(by_hand.allclose(alone, 1e-5, 1e-7), "replicas should have the loss of the module alone");
}

int main() { return comm::run_main(run); }
