#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tandem/parallel/distributed_data_parallel.h"

// Gradients travel beside whatever else the ranks send to each other during backward.
namespace tandem::parallel {
namespace {

/// x itself; the gradient is summed over the ranks, as a layer that is split over them does it.
struct SummedBack : torch::autograd::Function<SummedBack> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, comm::ProcessGroup* group) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    auto sum = gradients[0].clone();
    comm::all_reduce_(sum, *reinterpret_cast<comm::ProcessGroup*>(context->saved_data["group"].toInt()));
    return {sum, Tensor()};
  }
};

/// Rank 0 sums the bucket of `near` and then the gradient that flows on; the others the other way round. On one group,
/// one after the other, each would wait for the other.
TEST(Overlap, BucketsAndTheModelsOwnSumsMayCross) {
  for (const int ranks : {2, 3, 4}) {
    for (const auto transport : {comm::Transport::memory, comm::Transport::segments, comm::Transport::sockets}) {
      comm::run_ranks(ranks,
                      [&](comm::ProcessGroup& group) {
                        const auto far = at::ones({3}, at::kDouble).requires_grad_();
                        const auto near = at::ones({3}, at::kDouble).requires_grad_();
                        DistributedDataParallel replicas({far, near}, {}, {"far", "near"}, group,
                                                         {.bucket_bytes = 8, .first_bucket_bytes = 8});
                        for (int step = 0; step < 3; ++step) {
                          const auto x = far * (group.rank() + 1);
                          const auto y = group.rank() == 0 ? SummedBack::apply(x, &group) * near
                                                           : SummedBack::apply(x * near, &group);
                          const auto loss = y.sum();
                          replicas.before_backward(loss);
                          loss.backward();
                          EXPECT_TRUE(far.grad().equal(at::full({3}, ranks * ranks * (ranks + 1) / 2.0, at::kDouble)));
                          far.mutable_grad().reset();
                          near.mutable_grad().reset();
                        }
                      },
                      {.timeout = std::chrono::seconds(20), .transport = transport});
    }
  }
}

TEST(Overlap, TellsHowLongGradientsTravelAndTheStepWaits) {
  for (const int ranks : {1, 2}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const auto weight = at::ones({1000}).requires_grad_();
      DistributedDataParallel replicas({weight}, {}, {"weight"}, group);
      EXPECT_EQ(replicas.overlap().travelled, 0);
      const auto loss = weight.sum();
      replicas.before_backward(loss);
      loss.backward();
      const auto [travelled, waited] = replicas.overlap();
      EXPECT_EQ(travelled > 0, ranks > 1);
      EXPECT_EQ(waited > 0, ranks > 1);
    });
  }
}

TEST(Overlap, GroupsShareOneThatIsMadeOnce) {
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    auto& beside = group.beside();
    group.meter().reset();
    EXPECT_EQ(&group.beside(), &beside);
    EXPECT_TRUE(group.meter().counts().empty());
    EXPECT_EQ(beside.rank(), group.rank());
    EXPECT_EQ(beside.size(), group.size());
  });
}

}  // namespace
}  // namespace tandem::parallel
