// A program of another project: two ranks add up their parts, and rank their queries by a gallery that both hold.
#include <ATen/ATen.h>

#include <cstdio>

#include "tandem/comm/collectives.h"
#include "tandem/comm/run_main.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/evaluation/retrieval.h"

void run(tandem::comm::ProcessGroup& group) {
  using namespace tandem;
  const auto [begin, end] = comm::split_range(5, group.size(), group.rank());
  const auto sum = comm::all_reduce(at::arange(begin, end, at::kDouble).sum(), group).item<double>();
  const evaluation::Samples part{at::eye(5).slice(0, begin, end), at::arange(begin, end), {}};
  const auto scores = evaluation::retrieve(part, part, {}, group);
  if (group.rank() == 0) std::printf("sum %g, mean AP %g\n", sum, scores.mean_ap);
}

int main() {
  return tandem::comm::run_main([] { tandem::comm::run_ranks(2, run); });
}
