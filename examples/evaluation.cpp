// Retrieval scores of features that are distributed over the ranks. The scores are the same for any number of ranks.
#include <ATen/ATen.h>

#include <cstdio>

#include "tandem/comm/run_main.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/evaluation/retrieval.h"

void run() {
  using namespace tandem;
  constexpr int64_t kQueries = 500, kEntries = 3000, kIdentities = 100;
  at::manual_seed(1);
  const auto draw = [](int64_t n) -> evaluation::Samples {
    const auto identity = at::arange(n, at::kLong) % kIdentities;
    return {at::one_hot(identity, kIdentities) + 0.2 * at::randn({n, kIdentities}), identity, {}};
  };
  const auto query = draw(kQueries), gallery = draw(kEntries);
  const auto part = [](const evaluation::Samples& all, comm::ProcessGroup& group) -> evaluation::Samples {
    const auto [begin, end] = comm::split_range(all.identity.size(0), group.size(), group.rank());
    return {all.features.slice(0, begin, end), all.identity.slice(0, begin, end), {}};
  };

  const auto one = comm::make_single_group();
  const auto expected = evaluation::retrieve(query, gallery, {}, *one);
  for (const int ranks : {1, 2, 3}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const auto scores = evaluation::retrieve(part(query, group), part(gallery, group), {}, group);
      TORCH_CHECK(std::abs(scores.mean_ap - expected.mean_ap) < 1e-12, "mean AP differs from one device");
      if (group.rank() == 0) {
        std::printf("%d ranks: mean AP %.6f, among the first 1 %.3f, 5 %.3f, 10 %.3f; mINP %.6f\n", ranks,
                    scores.mean_ap, scores.cmc[0], scores.cmc[4], scores.cmc[9], scores.mean_inp);
      }
    });
  }
}

int main() { return tandem::comm::run_main(run); }
