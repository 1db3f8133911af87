// Measures memory exactly: bytes by rank and category, and the composition of the peak.
#include <ATen/ATen.h>

#include <cstdio>

#include "tandem/comm/run_main.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/table.h"

void run() {
  using namespace tandem;
  memory::install_meter();  // before the first tensor
  const RankScope rank(0);

  Tensor weight, gradient;
  {
    const CategoryScope scope(Category::parameters);
    weight = at::randn({512, 256}).requires_grad_();
  }
  {
    const CategoryScope scope(Category::activations);
    const auto x = at::randn({64, 256});
    x.mm(weight.t()).relu().sum().backward();
  }
  memory::tag(weight.grad(), Category::gradients);

  const auto account = memory::account(0);
  std::printf("%s", memory::memory_table(std::vector{account.at_peak}).c_str());
  std::printf("live now: %ld bytes\n", account.live_bytes());
  TORCH_CHECK(account.live_bytes() == 2 * 512 * 256 * 4, "weight and gradient should be all that is left");
}

int main() { return tandem::comm::run_main(run); }
