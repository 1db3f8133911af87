#include "tandem/classifier/class_sharded_head.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tests/support/text_of.h"

namespace tandem::classifier {
namespace {

constexpr int64_t kClasses = 11, kDim = 4, kRows = 7;  // nothing divides

Tensor features_of_all() {
  const auto features = at::empty({kRows, kDim}, at::kDouble);
  fill_normal_(features, 1.0, 3, 1);
  return features;
}
Tensor targets_of_all() {
  return at::tensor(std::vector<int64_t>{0, 10, 3, -1, 7, 3, 5}, at::kLong);
}  // first, last, left out, twice

Tensor whole_weight() {
  comm::ProcessGroup& one = *[] {
    static auto group = comm::make_single_group();
    return group.get();
  }();
  return ClassShardedHead({.classes = kClasses, .dim = kDim, .dtype = at::kDouble}, one).weight().detach().clone();
}

/// One device, libtorch's own operators.
struct Oracle {
  Tensor features = features_of_all().requires_grad_(), weight = whole_weight().requires_grad_(), loss;
  explicit Oracle(const Scoring& scoring) {
    auto scores = features.mm(weight.t());
    if (scoring.normalised) {
      scores = scores / features.norm(2, {1}, true) / weight.norm(2, {1}, true).t();
      const auto hot = at::one_hot(targets_of_all().clamp_min(0), kClasses).to(at::kDouble);
      scores = scores - scoring.margin * hot;
    }
    loss = at::cross_entropy_loss(scores * scoring.scale, targets_of_all(), {}, at::Reduction::Mean, -1);
    loss.backward();
  }
};

class Head : public testing::TestWithParam<Scoring> {};
INSTANTIATE_TEST_SUITE_P(Scorings, Head,
                         testing::Values(Scoring{false, 1.0, 0.0}, Scoring{false, 3.0, 0.0}, Scoring{true, 24.0, 0.0},
                                         Scoring{true, 24.0, 0.2}, Scoring{true, 64.0, 0.35}));

TEST_P(Head, LossAndGradientsEqualOneDevice) {
  const Oracle oracle(GetParam());
  for (const bool naive : {false, true}) {
    for (const int world : {1, 2, 3, 4, 5}) {
      comm::run_ranks(world, [&](comm::ProcessGroup& group) {
        ClassShardedHead head({kClasses, kDim, GetParam(), naive, 1, at::kDouble}, group);
        const auto sizes = comm::split_sizes(kRows, world);
        const auto [begin, end] = comm::split_range(kRows, world, group.rank());
        auto features = features_of_all().slice(0, begin, end).clone().requires_grad_();
        const auto loss = head.loss(features, targets_of_all().slice(0, begin, end).contiguous(), sizes);
        loss.backward();
        const auto classes = comm::split_range(kClasses, world, group.rank());
        const auto expected = oracle.weight.grad().slice(0, classes.first, classes.second);
        EXPECT_NEAR(loss.item<double>(), oracle.loss.item<double>(), 1e-12) << "ranks: " << world;
        EXPECT_TRUE(at::allclose(features.grad(), oracle.features.grad().slice(0, begin, end), 1e-10, 1e-13));
        EXPECT_TRUE(at::allclose(head.weight().grad(), expected, 1e-10, 1e-13)) << "ranks: " << world;
      });
    }
  }
}

TEST(Head, MoreRanksThanClasses) {
  comm::run_ranks(4, [](comm::ProcessGroup& group) {
    ClassShardedHead head({.classes = 3, .dim = kDim, .dtype = at::kDouble}, group);
    const std::vector<int64_t> sizes = {2, 0, 1, 0};
    auto features = at::ones({sizes[group.rank()], kDim}, at::kDouble).requires_grad_();
    const auto loss = head.loss(features, at::full({sizes[group.rank()]}, 2, at::kLong), sizes);
    loss.backward();
    EXPECT_TRUE(std::isfinite(loss.item<double>()));
    EXPECT_EQ(head.top_k(features.detach(), 2, sizes).size(0), sizes[group.rank()]);
  });
}

TEST(Head, TopKEqualsOneDevice) {
  const auto scores = features_of_all().mm((whole_weight() / whole_weight().norm(2, {1}, true)).t());
  const auto expected = std::get<1>(scores.topk(5, 1));
  for (const int world : {1, 2, 3, 4}) {
    comm::run_ranks(world, [&](comm::ProcessGroup& group) {
      ClassShardedHead head({.classes = kClasses, .dim = kDim, .dtype = at::kDouble}, group);
      const auto sizes = comm::split_sizes(kRows, world);
      const auto [begin, end] = comm::split_range(kRows, world, group.rank());
      const auto best = head.top_k(features_of_all().slice(0, begin, end), 5, sizes);
      EXPECT_TRUE(best.equal(expected.slice(0, begin, end))) << "ranks: " << world;
    });
  }
}

TEST(Head, OneSmallCollectiveForTheLoss) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const auto weight = at::ones({5, kDim}, at::kFloat).requires_grad_();
    auto features = at::ones({kRows, kDim}, at::kFloat).requires_grad_();
    group.meter().reset();
    const auto loss =
        sharded_softmax_loss(features, weight, at::zeros({kRows}, at::kLong), 5 * group.rank(), {}, group);
    loss.backward();
    const auto counts = group.meter().counts();
    EXPECT_EQ(counts.size(), 1u);
    EXPECT_EQ(counts.at("all_gather").calls, 1);
    EXPECT_EQ(counts.at("all_gather").bytes, 12 * kRows);  // three floats a row, forward only
  });
}

TEST(Head, TheNaiveFormFillsRankZero) {
  memory::install_meter();
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const memory::RankScope rank(10 + group.rank());
    const memory::Scope scope(memory::Category::activations);
    const int64_t classes = 4000, rows = 64;
    const std::vector<int64_t> sizes = {32, 32};
    int64_t peaks[2];
    for (const bool naive : {false, true}) {
      ClassShardedHead head({.classes = classes, .dim = 8, .naive = naive}, group);
      memory::reset_peak(10 + group.rank());
      const auto before = memory::account(10 + group.rank()).live_bytes();
      head.loss(at::ones({32, 8}).requires_grad_(), at::zeros({32}, at::kLong), sizes).backward();
      peaks[naive] = memory::account(10 + group.rank()).peak_bytes() - before;
    }
    EXPECT_LT(peaks[0], 2 * rows * classes / 2 * 4);  // one buffer [C_local, N] and small things
    if (group.rank() == 0) {
      EXPECT_GT(peaks[1], 2 * rows * classes * 4);  // at least scores and gradient, whole
    }
  });
}

using test::text_of;

TEST(Head, FaultsAreNamed) {
  const auto group = comm::make_single_group();
  ClassShardedHead head({.classes = 3, .dim = 2}, *group);
  const std::vector<int64_t> sizes = {2};
  const auto features = at::ones({2, 2});
  const auto out_of_range =
      "softmax loss: targets[1] is 3, which no rank's classes hold: write -1 to leave a row out, "
      "or raise classes";
  EXPECT_EQ(text_of([&] {
              head.loss(features, at::tensor(std::vector<int64_t>{0, 3}, at::kLong), sizes);
            }),
            out_of_range);
  ClassShardedHead naive({.classes = 3, .dim = 2, .naive = true}, *group);
  EXPECT_EQ(text_of([&] {
              naive.loss(features, at::tensor(std::vector<int64_t>{0, 3}, at::kLong), sizes);
            }),
            out_of_range);
  EXPECT_EQ(text_of([&] {
              head.loss(at::ones({2, 5}), at::tensor(std::vector<int64_t>{0, 1}, at::kLong), sizes);
            }),
            "softmax loss: features are [2, 5] and weight [3, 2], wanted [N, D] and [C_local, D]");
  EXPECT_EQ(text_of([&] { head.loss(features, at::ones({2}), sizes); }),
            "softmax loss: targets are Float, wanted int64");
  EXPECT_EQ(text_of([&] { head.top_k(features, 4, sizes); }), "head: k is 4, wanted 1..3");
  EXPECT_EQ(text_of([&] { ClassShardedHead({.classes = 0, .dim = 2}, *group); }),
            "head: classes is 0, wanted 1 or more");
}

}  // namespace
}  // namespace tandem::classifier
