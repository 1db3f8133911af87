// A linear layer that is split by its inputs. Each rank holds some columns of W and the same columns of x, so that its
// product is one term of y = sum over r of x_r W_r'. reduce_scatter adds the terms and gives each rank some samples
// (data parallel). If the layer before is split by its outputs, no communication is needed between the two. The result
// is compared with one device.
#include <ATen/ATen.h>

#include <cstdio>

#include "tandem/comm/collectives.h"
#include "tandem/comm/run_main.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/layers/linear.h"

using namespace tandem;

constexpr int64_t kRows = 11, kIn = 7, kHidden = 8, kOut = 5;

Tensor numbers(at::IntArrayRef shape, double phase) {
  return at::sin(at::arange(c10::multiply_integers(shape), at::kDouble) * 1.3 + phase).reshape(shape);
}

void run() {
  const auto all_x = numbers({kRows, kIn}, 0), all_up = numbers({kHidden, kIn}, 1),
             all_down = numbers({kOut, kHidden}, 2);
  auto x_alone = all_x.clone().requires_grad_(), up_alone = all_up.clone().requires_grad_(),
       down_alone = all_down.clone().requires_grad_();
  const auto y_alone = at::matmul(at::relu(at::matmul(x_alone, up_alone.t())), down_alone.t());
  y_alone.pow(2).sum().backward();

  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const auto [first, last] = comm::split_range(kRows, group.size(), group.rank());  // this rank's samples
    const layers::Division units(group, kHidden);                                     // and its hidden units
    auto x = all_x.slice(0, first, last).clone().requires_grad_();
    layers::ColumnLinear first_layer(kIn, units, {.bias = false, .copies = false, .gathers = false});
    layers::RowLinear second_layer(units, kOut, {.bias = false, .rows = 0});
    auto up = first_layer.parameters()[0], down = second_layer.parameters()[0];
    up.set_data(all_up.narrow(0, units.first(), units.count()).clone());
    down.set_data(all_down.narrow(1, units.first(), units.count()).clone());

    const auto batch = comm::all_gather(x, group);             // [n, in]
    const auto hidden = at::relu(first_layer.forward(batch));  // [n, hidden / N]: input of the next layer
    const auto y = second_layer.forward(hidden);               // a term of the sum, reduce_scatter: [n / N, out]
    y.pow(2).sum().backward();                                 // all_gather, then reduce_scatter

    TORCH_CHECK(at::allclose(y, y_alone.slice(0, first, last), 1e-12), "y differs from that of one device");
    TORCH_CHECK(at::allclose(up.grad(), up_alone.grad().narrow(0, units.first(), units.count()), 1e-12),
                "the first layer's dW differs");
    TORCH_CHECK(at::allclose(down.grad(), down_alone.grad().narrow(1, units.first(), units.count()), 1e-12),
                "the second layer's dW differs");
    TORCH_CHECK(at::allclose(x.grad(), x_alone.grad().slice(0, first, last), 1e-12), "dx differs");
    if (group.rank() == 0) std::printf("y, both dW and dx of 3 ranks equal those of one device\n");
  });
}

int main() { return comm::run_main(run); }
