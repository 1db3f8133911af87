#include "tandem/classifier/ordered_softmax_loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <numeric>

#include "tandem/base/rng.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tests/support/text_of.h"

namespace tandem::classifier {
namespace {

constexpr int64_t kClasses = 11, kDim = 5, kRows = 7, kShards = 4;  // nothing divides

Tensor normal(at::IntArrayRef sizes, uint64_t stream, at::ScalarType type) {
  const auto drawn = at::empty(sizes, type);
  fill_normal_(drawn, 1.0, 3, stream);
  return drawn;
}

const Tensor& targets() {
  static const auto all = at::tensor(std::vector<int64_t>{0, 10, 3, -1, 7, 3, 5}, at::kLong);
  return all;
}

struct Found {
  std::vector<Tensor> losses, features;  // by shard of the batch
  std::vector<Tensor> weight;            // gradient, by rank
};

/// Micro-batch i of rank r is shard i * ranks + r.
Found run(int ranks, at::ScalarType type, const Scoring& scoring) {
  const auto sizes = comm::split_sizes(kRows, kShards);
  const auto features = normal({kRows, kDim}, 1, type), weight = normal({kClasses, kDim}, 2, type);
  const ShardOrder order{kShards, kClasses};
  const auto counts = ordered_counts(order, ranks);
  Found found{std::vector<Tensor>(kShards), std::vector<Tensor>(kShards), std::vector<Tensor>(ranks)};
  std::mutex mutex;
  comm::run_ranks(
      ranks,
      [&](comm::ProcessGroup& group) {
        const int rank = group.rank();
        const auto first = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
        const auto own = weight.narrow(0, first, counts[rank]).clone().requires_grad_();
        for (int64_t i = 0; i < kShards / ranks; ++i) {
          const int64_t shard = i * ranks + rank,
                        begin = std::accumulate(sizes.begin(), sizes.begin() + shard, int64_t{0});
          const auto rows = features.narrow(0, begin, sizes[shard]).clone().requires_grad_();
          const std::vector<int64_t> together(sizes.begin() + i * ranks, sizes.begin() + (i + 1) * ranks);
          const auto losses = ordered_softmax_loss(rows, own, targets().narrow(0, begin, sizes[shard]), together, order,
                                                   scoring, group, {.keep_bytes = 64});
          losses.backward(at::arange(i * ranks + 1, (i + 1) * ranks + 1, losses.options()));  // shard s counts s + 1
          const std::lock_guard lock(mutex);
          found.features[shard] = rows.grad();
          if (rank == 0) {
            for (int64_t r = 0; r < ranks; ++r) found.losses[i * ranks + r] = losses[r].detach().clone();
          }
        }
        const std::lock_guard lock(mutex);
        found.weight[rank] = own.grad();
      },
      {.threads = 1});
  return found;
}

TEST(OrderedSoftmaxLoss, HasTheSameBitsForEveryNumberOfRanks) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (auto scoring : {plain_softmax(), cosface(8, 0.2), arcface(8, 0.3)}) {
      for (const double smoothing : {0.0, 0.1}) {
        scoring.smoothing = smoothing;
        const auto one = run(1, type, scoring);
        for (const int ranks : {2, 4}) {
          const auto several = run(ranks, type, scoring);
          EXPECT_TRUE(at::cat(several.weight).equal(one.weight[0])) << ranks;
          for (int64_t shard = 0; shard < kShards; ++shard) {
            EXPECT_TRUE(several.losses[shard].equal(one.losses[shard])) << ranks << " shard " << shard;
            EXPECT_TRUE(several.features[shard].equal(one.features[shard])) << ranks << " shard " << shard;
          }
        }
      }
    }
  }
}

TEST(OrderedSoftmaxLoss, IsTheLossOfEachShard) {
  const auto found = run(2, at::kDouble, plain_softmax());
  const auto features = normal({kRows, kDim}, 1, at::kDouble).requires_grad_();
  const auto weight = normal({kClasses, kDim}, 2, at::kDouble).requires_grad_();
  const auto sizes = comm::split_sizes(kRows, kShards);
  int64_t begin = 0;
  for (int64_t shard = 0; shard < kShards; ++shard) {
    const auto loss = at::cross_entropy_loss(features.narrow(0, begin, sizes[shard]).mm(weight.t()),
                                             targets().narrow(0, begin, sizes[shard]), {}, at::Reduction::Mean, -1);
    EXPECT_NEAR(found.losses[shard].item<double>(), loss.item<double>(), 1e-13);
    (loss * static_cast<double>(shard + 1)).backward();
    begin += sizes[shard];
  }
  EXPECT_TRUE(at::allclose(at::cat(found.features), features.grad(), 1e-12, 1e-14));
  EXPECT_TRUE(at::allclose(at::cat(found.weight), weight.grad(), 1e-12, 1e-14));
}

TEST(OrderedSoftmaxLoss, EachRankHoldsWholeShards) {
  EXPECT_EQ(ordered_counts({4, 11}, 2), (std::vector<int64_t>{6, 5}));
  EXPECT_EQ(ordered_counts({4, 10}, 2), (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(test::text_of<c10::ValueError>([] {
              ordered_counts({4, 11}, 3);
            }),
            "softmax loss: shards is 4 with 3 ranks, wanted a multiple of them");
  const auto group = comm::make_single_group();
  const auto rows = at::ones({2, 3}), weight = at::ones({4, 3}).requires_grad_();
  EXPECT_EQ(test::text_of<c10::ValueError>([&] {
              ordered_softmax_loss(rows, weight, at::zeros({2}, at::kLong), std::vector<int64_t>{2}, {2, 5},
                                   plain_softmax(), *group);
            }),
            "softmax loss: weight has 4 rows, wanted the 5 classes of this rank's shards");
}

}  // namespace
}  // namespace tandem::classifier
