// Data parallelism by hand: a gradient manager whose callback sums each gradient over the ranks.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstdio>

#include "tandem/comm/collectives.h"
#include "tandem/comm/run_main.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/parallel/grad_manager.h"

using namespace tandem;

constexpr int64_t kSamples = 10;  // of the whole batch; three ranks have 4, 3 and 3

Tensor train(const Tensor& x, const Tensor& y, comm::ProcessGroup& group) {
  auto weight = at::zeros({8, 1}, at::kDouble);
  parallel::GradManager manager;
  manager.attach(weight, [&](const Tensor&, const Tensor& gradient) { return comm::all_reduce(gradient, group); });
  const auto [begin, end] = comm::split_range(kSamples, group.size(), group.rank());
  for (int step = 0; step < 50; ++step) {
    manager.backward((x.slice(0, begin, end).mm(weight) - y.slice(0, begin, end)).square().sum() / kSamples);
    const at::NoGradGuard no_grad;
    weight.sub_(0.05 * weight.grad());
    weight.mutable_grad().reset();
  }
  return weight.detach();
}

void run() {
  const auto x = at::randn({kSamples, 8}, at::kDouble), y = x.sum(1, true);
  const auto alone = train(x, y, *comm::make_single_group());
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const auto weight = train(x, y, group);
    TORCH_CHECK(weight.allclose(alone, 1e-12), "three ranks should end where one does");
    if (group.rank() == 0) std::printf("error of the fit: %.3f\n", (x.mm(weight) - y).norm().item<double>());
  });
}

int main() { return comm::run_main(run); }
