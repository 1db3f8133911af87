// Parameter parallelism: data parallelism with split weights. Each rank keeps some rows of W and of its momentum,
// gathers all of W when it is needed, and receives the gradient of its own rows only. The result is compared with one
// device.
#include <ATen/ATen.h>

#include <cstdio>

#include "tandem/comm/collectives.h"
#include "tandem/comm/run_main.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"

using namespace tandem;

constexpr int64_t kRows = 11, kIn = 7, kOut = 5;
constexpr double kRate = 0.1, kMomentum = 0.9;

Tensor numbers(at::IntArrayRef shape, double phase) {
  return at::sin(at::arange(c10::multiply_integers(shape), at::kDouble) * 1.3 + phase).reshape(shape);
}

Tensor loss_of(const Tensor& y) { return y.pow(2).sum() / (kRows * kOut); }

void update(Tensor& weight, Tensor& momentum) {
  const at::NoGradGuard no_grad;
  momentum.mul_(kMomentum).add_(weight.grad());
  weight.sub_(momentum * kRate);
  weight.mutable_grad() = Tensor();
}

Tensor train_on_one_device(const Tensor& x, int steps) {
  auto weight = numbers({kOut, kIn}, 2).requires_grad_(), momentum = at::zeros({kOut, kIn}, at::kDouble);
  for (int step = 0; step < steps; ++step) {
    loss_of(at::matmul(x, weight.t())).backward();
    update(weight, momentum);
  }
  return weight.detach();
}

void run() {
  const auto x = numbers({kRows, kIn}, 0), wanted = train_on_one_device(x, 10);
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const auto [begin, end] = comm::split_range(kRows, group.size(), group.rank());
    const auto own_x = x.slice(0, begin, end);  // data parallel: a part of the batch
    // The root splits W and sends each rank its part.
    auto weight = comm::scatter(numbers({kOut, kIn}, 2), 0, group).requires_grad_();
    auto momentum = at::zeros_like(weight.detach());
    group.meter().reset();
    for (int step = 0; step < 10; ++step) {
      const auto whole = comm::all_gather(weight, group);  // [out, in]; backward: reduce_scatter
      loss_of(at::matmul(own_x, whole.t())).backward();    // the ranks' losses add up to the loss of the whole batch
      update(weight, momentum);
    }
    const auto result = comm::all_gather(weight.detach(), group);
    TORCH_CHECK(at::allclose(result, wanted, 1e-12, 1e-12), "the weights differ from those of one device");
    const auto sent = group.meter().counts();
    if (group.rank() != 0) return;
    std::printf("rank 0 keeps %ld of %ld rows; equal to one device after 10 steps\n", weight.size(0), kOut);
    for (const auto& [operation, count] : sent)
      std::printf("%-15s %ld calls, %ld bytes\n", operation.c_str(), count.calls, count.bytes);
  });
}

int main() { return comm::run_main(run); }
