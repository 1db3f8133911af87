// A linear layer that is split by its outputs, inside a data-parallel net. Each rank gathers the batch and computes
// some columns of y for all samples; one all_to_all then turns "all samples, some outputs" into "some samples, all
// outputs". The result is compared with one device.
#include <ATen/ATen.h>

#include <cstdio>

#include "tandem/comm/collectives.h"
#include "tandem/comm/run_main.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/layers/hybrid.h"
#include "tandem/layers/linear.h"

using namespace tandem;

constexpr int64_t kRows = 11, kIn = 7, kOut = 5;

Tensor numbers(at::IntArrayRef shape, double phase) {
  return at::sin(at::arange(c10::multiply_integers(shape), at::kDouble) * 1.3 + phase).reshape(shape);
}

/// Sum of the cross entropies of the samples: those of one rank, or all.
Tensor loss_of(const Tensor& scores, const Tensor& targets) {
  return -at::log_softmax(scores, 1).gather(1, targets.unsqueeze(1)).sum();
}

void run() {
  const auto all_x = numbers({kRows, kIn}, 0), all_weight = numbers({kOut, kIn}, 2);
  const auto all_targets = at::arange(kRows, at::kLong) % kOut;
  auto x_alone = all_x.clone().requires_grad_(), weight_alone = all_weight.clone().requires_grad_();
  const auto y_alone = at::matmul(x_alone, weight_alone.t());
  loss_of(y_alone, all_targets).backward();

  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const auto [first, last] = comm::split_range(kRows, group.size(), group.rank());  // this rank's samples
    const layers::Division outputs(group, kOut);                                      // and its outputs
    auto x = all_x.slice(0, first, last).clone().requires_grad_();
    layers::ColumnLinear linear(kIn, outputs, {.bias = false, .copies = false, .gathers = false});
    auto weight = linear.parameters()[0];
    weight.set_data(all_weight.narrow(0, outputs.first(), outputs.count()).clone());

    const auto batch = comm::all_gather(x, group);             // [n, in]
    const auto part = linear.forward(batch);                   // [n, out / N]: model parallel
    const auto y = layers::to_data_parallel(part, outputs);    // [n / N, out]: data parallel again
    loss_of(y, all_targets.slice(0, first, last)).backward();  // all_to_all back, then reduce_scatter

    TORCH_CHECK(at::allclose(y, y_alone.slice(0, first, last), 1e-12), "scores differ from those of one device");
    TORCH_CHECK(at::allclose(weight.grad(), weight_alone.grad().narrow(0, outputs.first(), outputs.count()), 1e-12),
                "dW differs");
    TORCH_CHECK(at::allclose(x.grad(), x_alone.grad().slice(0, first, last), 1e-12), "dx differs");
    if (group.rank() == 0) std::printf("scores, dW and dx of 3 ranks equal those of one device\n");
  });
}

int main() { return comm::run_main(run); }
