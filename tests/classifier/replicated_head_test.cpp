#include "tandem/classifier/replicated_head.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>
#include <numeric>

#include "tandem/base/rng.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tests/support/text_of.h"

namespace tandem::classifier {
namespace {

constexpr int64_t kClasses = 11, kDim = 4, kRows = 7;

Tensor features_of_all() {
  const auto features = at::empty({kRows, kDim}, at::kDouble);
  fill_normal_(features, 1.0, 3, 1);
  return features;
}

/// First, last, twice the same; two rows are left out.
Tensor targets_of_all() { return at::tensor(std::vector<int64_t>{0, 10, 3, -1, 7, 3, -1}, at::kLong); }

HeadOptions options_of(const Scoring& scoring) {
  return {.classes = kClasses, .dim = kDim, .scoring = scoring, .dtype = at::kDouble};
}

struct Found {
  Tensor loss, of_features, of_weight;
  Ranking best;
};

/// What this rank finds for rows begin .. begin + sizes[rank] - 1; loss and gradient of the weight are of all ranks.
Found found_by(Head& head, comm::ProcessGroup& group, const std::vector<int64_t>& sizes) {
  const int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + group.rank(), int64_t{0});
  const int64_t own = sizes[group.rank()];
  auto features = features_of_all().narrow(0, begin, own).clone().requires_grad_();
  const auto loss = head.loss(features, targets_of_all().narrow(0, begin, own), sizes);
  loss.backward();
  auto of_weight = head.parameter().tensor.grad().clone();
  comm::all_reduce_(of_weight, group);
  return {loss.detach(), features.grad(), of_weight, head.top_k(features, 5, sizes)};
}

Found found_by_one_device(const Scoring& scoring) {
  const auto group = comm::make_single_group();
  ClassShardedHead head(options_of(scoring), *group);
  return found_by(head, *group, {kRows});
}

Scoring smoothed(Scoring scoring) {
  scoring.smoothing = 0.1;
  return scoring;
}

/// Rows in equal parts, in uneven ones, a rank whose only rows are left out, a rank without rows.
const std::vector<std::vector<int64_t>> kSizes = {{7}, {4, 3}, {3, 1, 3}, {3, 2, 2}, {0, 7}, {2, 2, 2, 1}};

TEST(ReplicatedHead, EqualsOneDevice) {
  for (const auto& scoring : {plain_softmax(), smoothed(plain_softmax()), cosface(24, 0.2), smoothed(arcface(24, 0.5)),
                              combined_margin(32, 0.9, 0.4, 0.15), sphereface(4, 5), large_margin_softmax(4, 8)}) {
    const auto expected = found_by_one_device(scoring);
    for (const auto& sizes : kSizes) {
      comm::run_ranks(static_cast<int>(sizes.size()), [&](comm::ProcessGroup& group) {
        ReplicatedHead head(options_of(scoring), group);
        const auto parameter = head.parameter();
        EXPECT_TRUE(parameter.placement.is_everywhere());
        EXPECT_EQ(parameter.tensor.sizes(), (at::IntArrayRef{kClasses, kDim}));
        const auto found = found_by(head, group, sizes);
        const int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + group.rank(), int64_t{0});
        const auto own = [&](const Tensor& whole) { return whole.narrow(0, begin, sizes[group.rank()]); };
        EXPECT_NEAR(found.loss.item<double>(), expected.loss.item<double>(), 1e-12);
        EXPECT_TRUE(at::allclose(found.of_features, own(expected.of_features), 0, 1e-13));
        EXPECT_TRUE(at::allclose(found.of_weight, expected.of_weight, 1e-12, 1e-12));
        EXPECT_TRUE(found.best.classes.equal(own(expected.best.classes)));
        EXPECT_TRUE(at::allclose(found.best.scores, own(expected.best.scores), 1e-12, 1e-14));
      });
    }
  }
}

/// Bit by bit, in float32, of which the ranks' shares of the loss are rounded.
TEST(ReplicatedHead, TheLossIsTheSameOnAllRanks) {
  std::mutex mutex;
  std::vector<double> losses;
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    auto options = options_of(cosface(24, 0.2));
    options.dtype = at::kFloat;
    ReplicatedHead head(options, group);
    const auto features = features_of_all().narrow(0, 2 * group.rank(), 2).to(at::kFloat);
    const auto loss = head.loss(features, targets_of_all().narrow(0, 2 * group.rank(), 2), {});
    const std::lock_guard lock(mutex);
    losses.push_back(loss.item<double>());
  });
  EXPECT_EQ(losses, std::vector<double>(3, losses[0]));
}

/// Two numbers in forward, nothing in backward and for the best classes.
TEST(ReplicatedHead, SendsSixteenBytesALoss) {
  constexpr int kRanks = 4;
  comm::run_ranks(kRanks, [&](comm::ProcessGroup& group) {
    ReplicatedHead head(options_of(plain_softmax()), group);
    const auto features = features_of_all().narrow(0, 0, 2).clone().requires_grad_();
    const auto targets = targets_of_all().narrow(0, 0, 2);
    head.loss(features, targets, {}).backward();
    head.top_k(features, 3, {});
    int64_t bytes = 0;
    for (const auto& [operation, sums] : group.meter().counts()) bytes += sums.bytes;
    EXPECT_EQ(comm::reduce_number(bytes, comm::Reduce::sum, group), 2 * (kRanks - 1) * 16);
  });
}

TEST(ReplicatedHead, RefusesWhatItCannotDo) {
  const auto group = comm::make_single_group();
  const auto text = [&](const HeadOptions& options) {
    return test::text_of<c10::ValueError>([&] { ReplicatedHead(options, *group); });
  };
  auto naive = options_of(plain_softmax()), sampled = naive;
  naive.naive = true;
  sampled.sampling = Sampling{0.5};
  EXPECT_EQ(text(naive), "head: the replicated form gathers no scores, wanted naive left out");
  EXPECT_EQ(text(sampled), "head: the replicated form scores all classes, wanted the sharded one to sample");
  EXPECT_EQ(test::text_of<c10::ValueError>([&] {
              ReplicatedHead(options_of(plain_softmax()), *group).set_row_update([](const Rows&, const Tensor&) {});
            }),
            "head: the replicated form's gradient is summed over the ranks after backward, wanted the sharded one to "
            "update rows in it");
}

}  // namespace
}  // namespace tandem::classifier
