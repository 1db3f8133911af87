#include "tandem/parallel/join.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/rng.h"
#include "tandem/comm/world.h"
#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

constexpr int64_t kRows = 3;

int64_t steps_of(int rank) { return std::vector<int64_t>{4, 2, 5, 0}[rank]; }

Tensor batch_of(int rank, int64_t step) {
  const auto x = at::empty({kRows, 4}, at::kDouble);
  fill_normal_(x, 1.0, 3, 10 * rank + step);
  return x;
}

Tensor loss_of(const Tensor& weight, const Tensor& x) { return at::tanh(x.mm(weight)).square().sum(); }

/// Gradient descent on one device, where each step has the batches of all ranks that still have one.
Tensor trained_on_one(int ranks) {
  auto weight = at::full({4, 2}, 0.5, at::kDouble).requires_grad_();
  for (int64_t step = 0; step < 5; ++step) {
    std::vector<Tensor> batches;
    for (int rank = 0; rank < ranks; ++rank) {
      if (step < steps_of(rank)) batches.push_back(batch_of(rank, step));
    }
    if (batches.empty()) continue;
    const auto x = at::cat(batches);
    (loss_of(weight, x) / x.size(0)).backward();
    const at::NoGradGuard no_grad;
    weight.sub_(weight.grad());
    weight.mutable_grad().reset();
  }
  return weight.detach();
}

struct Case {
  comm::Transport transport = comm::Transport::memory;
  bool is_view = true, find_unused = false, joined_ranks_step = false;
};

void expect_one_devices_weights(int ranks, const Case& run) {
  const auto expected = trained_on_one(ranks);
  comm::run_ranks(ranks,
                  [&](comm::ProcessGroup& group) {
                    auto weight = at::full({4, 2}, 0.5, at::kDouble).requires_grad_();
                    const auto seen = at::zeros({}, at::kLong);  // a buffer
                    DistributedDataParallel replicas(
                        {weight}, {seen}, {"weight"}, group,
                        {.gradient_as_bucket_view = run.is_view, .find_unused_parameters = run.find_unused});
                    const auto update = [&] {
                      const at::NoGradGuard no_grad;
                      weight.sub_(weight.grad());
                      weight.mutable_grad().reset();
                    };
                    Join join(replicas);
                    for (int64_t step = 0; step < steps_of(group.rank()); ++step) {
                      const auto samples = join.begin(kRows).samples;
                      const auto loss = loss_of(weight, batch_of(group.rank(), step)) / samples;
                      replicas.before_backward(loss);
                      loss.backward();
                      update();
                      seen.add_(1);
                    }
                    join.end(run.joined_ranks_step ? update : std::function<void()>());
                    EXPECT_TRUE(at::allclose(weight, expected, 1e-12)) << ranks << " ranks, rank " << group.rank();
                    int64_t most = 0;
                    for (int rank = 0; rank < ranks; ++rank) most = std::max(most, steps_of(rank));
                    EXPECT_EQ(seen.item<int64_t>(), most);
                    EXPECT_FALSE(weight.grad().defined());
                  },
                  {.timeout = std::chrono::seconds(20), .transport = run.transport});
}

TEST(Join, RanksWithoutBatchesAddZeros) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const auto& run : {Case{}, Case{.transport = comm::Transport::sockets}, Case{.is_view = false},
                            Case{.find_unused = true}, Case{.joined_ranks_step = true}}) {
      expect_one_devices_weights(ranks, run);
    }
  }
}

/// Gradients are reset before a step, so those of a rank's last step are left over when its batches have run out.
TEST(Join, GradientsThatAreLeftOverAreNotAddedAgain) {
  for (const bool is_view : {true, false}) {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const auto weight = at::ones({2}, at::kDouble).requires_grad_();
      DistributedDataParallel replicas({weight}, {}, {"weight"}, group, {.gradient_as_bucket_view = is_view});
      Join join(replicas);
      for (int step = 0; step < (group.rank() == 0 ? 4 : 1); ++step) {
        replicas.zero_grad();
        join.begin(1);
        const auto loss = weight.sum();
        replicas.before_backward(loss);
        loss.backward();
        EXPECT_EQ(weight.grad()[0].item<double>(), step == 0 ? 2 : 1);
      }
      join.end();
    });
  }
}

TEST(Join, TellsHowManyRanksAndSamplesAStepHas) {
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    const auto weight = at::ones({2}).requires_grad_();
    DistributedDataParallel replicas({weight}, {}, {"weight"}, group);
    Join join(replicas);
    std::vector<int64_t> told;
    for (int64_t step = 0; step < steps_of(group.rank()); ++step) {
      const auto [ranks, samples] = join.begin(group.rank() + 1);
      told.insert(told.end(), {ranks, samples});
      const auto loss = weight.sum();
      replicas.before_backward(loss);
      loss.backward();
      replicas.zero_grad();
    }
    join.end();
    const std::vector<int64_t> all = {3, 6, 3, 6, 2, 4, 2, 4, 1, 3};
    EXPECT_EQ(told, std::vector<int64_t>(all.begin(), all.begin() + 2 * steps_of(group.rank())));
  });
}

TEST(Join, ABatchHasNoNegativeSize) {
  const auto group = comm::make_single_group();
  DistributedDataParallel replicas({}, {}, {}, *group);
  EXPECT_EQ(test::text_of<c10::ValueError>([&] { Join(replicas).begin(-1); }),
            "join: a batch has -1 samples, wanted 0 or more");
}

}  // namespace
}  // namespace tandem::parallel
