// Runs four ranks as threads of this process, differentiates through a collective, and prints what rank 0 has sent.
#include <ATen/ATen.h>

#include <cstdio>

#include "tandem/comm/collectives.h"
#include "tandem/comm/run_main.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"

void run() {
  using namespace tandem;
  comm::run_ranks(4, [](comm::ProcessGroup& group) {
    // 10 rows over 4 ranks: 3, 3, 2, 2.
    const auto [begin, end] = comm::split_range(10, group.size(), group.rank());
    auto mine = at::arange(begin, end, at::kDouble).reshape({-1, 1}).requires_grad_();

    const auto all = comm::all_gather(mine, group);  // [10, 1] on every rank
    (all * all).sum().backward();                    // differentiates the sum of all four ranks' losses
    TORCH_CHECK(mine.grad().equal(4 * 2 * mine.detach()), "the gradient is not that of the sum over ranks");

    const auto sum = comm::all_reduce(mine.detach().sum(), group);
    TORCH_CHECK(sum.item<double>() == 45.0, "0 + 1 + ... + 9 is not 45");
    if (group.rank() != 0) return;
    for (const auto& [operation, count] : group.meter().counts()) {
      std::printf("%-15s %ld calls  %ld bytes sent by rank 0\n", operation.c_str(), count.calls, count.bytes);
    }
  });
}

int main() { return tandem::comm::run_main(run); }
