// A softmax over classes that are split over the ranks, compared with one device.
#include <ATen/ATen.h>

#include <cstdio>

#include "tandem/classifier/class_sharded_head.h"
#include "tandem/comm/run_main.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"

void run() {
  using namespace tandem;
  constexpr int64_t kClasses = 1000, kDim = 16, kRows = 30;
  const classifier::HeadOptions options = {.classes = kClasses, .dim = kDim, .dtype = at::kDouble};
  const auto features = at::arange(kRows * kDim, at::kDouble).sin().reshape({kRows, kDim});
  const auto targets = at::arange(kRows, at::kLong) * 33;

  const auto one = comm::make_single_group();
  classifier::ClassShardedHead whole(options, *one);
  const auto expected = whole.loss(features, targets, std::vector<int64_t>{kRows}).item<double>();

  for (const int ranks : {2, 3, 4}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      classifier::ClassShardedHead head(options, group);  // classes / ranks rows of the same matrix
      const auto sizes = comm::split_sizes(kRows, ranks);
      const auto [begin, end] = comm::split_range(kRows, ranks, group.rank());
      const auto loss = head.loss(features.slice(0, begin, end), targets.slice(0, begin, end).contiguous(), sizes);
      loss.backward();
      TORCH_CHECK(std::abs(loss.item<double>() - expected) < 1e-12, "loss differs from one device");
      if (group.rank() == 0) {
        std::printf("%d ranks: %ld of %ld classes here, loss %.15f\n", ranks, head.parameter().tensor.size(0), kClasses,
                    loss.item<double>());
      }
    });
  }
}

int main() { return tandem::comm::run_main(run); }
