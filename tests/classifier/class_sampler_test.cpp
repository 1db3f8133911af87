#include "tandem/classifier/class_sampler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "tandem/base/rng.h"
#include "tandem/classifier/block_sizes.h"
#include "tandem/classifier/class_sharded_head.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tests/support/text_of.h"

namespace tandem::classifier {
namespace {

constexpr int64_t kClasses = 43, kDim = 4, kRows = 7, kStep = 5;
constexpr uint64_t kSeed = 9;

Tensor ids(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }

std::vector<int64_t> values_of(const Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

std::set<int64_t> global_ids(const ClassSample& sample, int64_t first) {
  std::set<int64_t> all;
  for (const auto id : values_of(sample.ids)) EXPECT_TRUE(all.insert(first + id).second) << id << " twice";
  return all;
}

TEST(ClassSampler, TheSameSetForAnyNumberOfRanks) {
  const auto targets = ids({42, 0, -1, 17, 17});
  for (const int64_t step : {0, 1, 1'000'000}) {
    const auto whole = global_ids(sample_classes({0.3}, kSeed, step, 0, kClasses, targets), 0);
    for (int world = 2; world <= 6; ++world) {
      std::set<int64_t> together;
      for (int rank = 0; rank < world; ++rank) {
        const auto [begin, end] = comm::split_range(kClasses, world, rank);
        together.merge(global_ids(sample_classes({0.3}, kSeed, step, begin, end - begin, targets), begin));
      }
      EXPECT_EQ(together, whole) << world;
    }
    for (const int64_t target : {42, 0, 17}) EXPECT_TRUE(whole.contains(target));
  }
}

TEST(ClassSampler, TargetsComeFirstThenTheOthers) {
  const auto sample = sample_classes({0.5, true}, kSeed, kStep, 10, 20, ids({29, 12, 12, 31, -1, 9}));
  const auto all = values_of(sample.ids);
  EXPECT_EQ(sample.num_targets, 2);
  EXPECT_EQ(all[0], 2);
  EXPECT_EQ(all[1], 19);
  EXPECT_TRUE(std::is_sorted(all.begin() + 2, all.end()));
  EXPECT_DOUBLE_EQ(sample.log_weight, std::log(2.0));
  EXPECT_EQ(sample_classes({1.0}, kSeed, kStep, 10, 20, ids({29})).ids.numel(), 20);
}

TEST(ClassSampler, EachClassHasTheChanceThatItIsTold) {
  std::vector<int> seen(1000);
  int64_t total = 0, twice = 0;
  std::set<int64_t> before;
  for (int64_t step = 0; step < 400; ++step) {
    const auto now = global_ids(sample_classes({0.1}, kSeed, step, 0, 1000, ids({})), 0);
    for (const auto id : now) {
      ++seen[id];
      twice += before.contains(id);
    }
    total += static_cast<int64_t>(now.size());
    before = now;
  }
  EXPECT_NEAR(static_cast<double>(total), 40'000, 4 * 190);  // binomial, four deviations
  EXPECT_NEAR(static_cast<double>(twice), 4'000, 4 * 66);    // steps do not depend on each other
  for (const int count : seen) EXPECT_NEAR(count, 40, 36);   // six deviations
}

TEST(ClassSampler, StaysWithinTheRangeThatItTells) {
  for (const auto& [rate, count] : {std::pair{0.1, 1000}, std::pair{0.5, 60}, std::pair{0.9, 5000}}) {
    const auto range = draws_of(rate, count);
    EXPECT_GE(range.least, 0);
    EXPECT_LE(range.most, count);
    EXPECT_LT(range.least, rate * count);
    EXPECT_GT(range.most, rate * count);
    for (int64_t step = 0; step < 300; ++step) {
      const auto drawn = sample_classes({rate}, kSeed, step, 0, count, ids({})).ids.numel();
      EXPECT_GE(drawn, range.least);
      EXPECT_LE(drawn, range.most);
    }
  }
  EXPECT_EQ(draws_of(1.0, 70).least, 70);
  EXPECT_EQ(draws_of(0.3, 0).most, 0);
}

TEST(ClassSampler, TakesAsManyClassesAsItIsTold) {
  const Sampling fixed{.rate = 0.5, .scored = 5};
  EXPECT_EQ(values_of(sample_classes(fixed, kSeed, kStep, 10, 20, ids({29, 11})).ids),
            (std::vector<int64_t>{1, 19, 0, 2, 3}));
  EXPECT_EQ(sample_classes(fixed, kSeed, kStep, 10, 3, ids({11})).ids.numel(), 3) << "all there are";
  EXPECT_EQ(sample_classes({.rate = 0.5, .scored = 1}, kSeed, kStep, 0, 9, ids({1, 2})).ids.numel(), 2);
}

TEST(ClassSampler, TheLargestDrawsHaveTheLargestBlocks) {
  const HeadOptions options{.dim = 8, .blocks = {.rows = 100}, .sampling = Sampling{0.25}};
  const auto draws = largest_draws(options, 1000, 20, 1);
  const int64_t most = 20 + draws_of(0.25, 980).most;
  EXPECT_EQ(draws, (std::vector<int64_t>{most, most / 100 * 100}));
  EXPECT_EQ(largest_draws(options, 80, 20, 1).size(), 1U) << "one block";
  const auto few = largest_draws(options, 30, 50, 1);
  EXPECT_EQ(few, std::vector<int64_t>{30}) << "each class is a target";
}

TEST(BlockSizes, AreTheSameOfFewerSamplesAndFeatures) {
  const HeadOptions options{.dim = 512, .blocks = {.keep_bytes = 1 << 20}};
  const auto few = in_same_blocks(options, 256, 16, 8);
  EXPECT_EQ(few.dim, 8);
  EXPECT_EQ(few.blocks.rows, block_rows(options, 256));
  EXPECT_EQ(block_rows(few, 16), block_rows(options, 256));
  EXPECT_EQ(most_kept(options, 256), (1 << 20) / (256 * 4));
  EXPECT_EQ(most_kept(few, 16), most_kept(options, 256));
}

/// One device, libtorch's own operators, only the sampled classes.
struct Oracle {
  Tensor features = at::empty({kRows, kDim}, at::kDouble), weight, loss;
  Tensor targets = ids({0, 42, 3, -1, 17, 3, 21});

  Oracle(const Sampling& sampling, const Scoring& scoring) {
    fill_normal_(features, 1.0, 3, 1);
    const auto one = comm::make_single_group();
    weight = ClassShardedHead({.classes = kClasses, .dim = kDim, .seed = kSeed, .dtype = at::kDouble}, *one)
                 .parameter()
                 .tensor;
    features.requires_grad_();
    const auto sample = sample_classes(sampling, kSeed, kStep, 0, kClasses, targets);
    const auto cosine = features.mm(weight.t()) / features.norm(2, {1}, true) / weight.norm(2, {1}, true).t();
    const auto hot = at::one_hot(targets.clamp_min(0), kClasses).to(at::kDouble);
    const auto is_counted = targets.ne(-1).unsqueeze(1);
    auto scores = scoring.scale * (cosine - scoring.margin.cosine * hot * is_counted);
    auto offsets = at::full({kClasses}, -INFINITY, at::kDouble);
    offsets.index_fill_(0, sample.ids, sample.log_weight);
    offsets.index_fill_(0, sample.ids.narrow(0, 0, sample.num_targets), 0);
    loss = at::cross_entropy_loss(scores + offsets, targets, {}, at::Reduction::Mean, -1);
    loss.backward();
  }
};

struct SampledForm {
  Sampling sampling;
  BlockOptions blocks;
};

void expect_equal(const SampledForm& form, bool in_backward, comm::ProcessGroup& group) {
  const auto scoring = cosface(16, 0.3);
  const Oracle oracle(form.sampling, scoring);
  ClassShardedHead head({.classes = kClasses,
                         .dim = kDim,
                         .scoring = scoring,
                         .blocks = form.blocks,
                         .sampling = form.sampling,
                         .seed = kSeed,
                         .dtype = at::kDouble},
                        group);
  head.set_step(kStep);
  auto gradient = at::zeros_like(head.parameter().tensor.detach());
  if (in_backward) {
    head.set_row_update([&](const Rows& rows, const Tensor& own) { gradient.index_add_(0, rows.ids, own); });
  }
  const auto sizes = comm::split_sizes(kRows, group.size());
  const auto [begin, end] = comm::split_range(kRows, group.size(), group.rank());
  auto features = oracle.features.detach().slice(0, begin, end).clone().requires_grad_();
  const auto loss = head.loss(features, oracle.targets.slice(0, begin, end).contiguous(), sizes);
  loss.backward();
  if (!in_backward) {
    ASSERT_TRUE(head.parameter().tensor.grad().is_sparse());
    gradient = head.parameter().tensor.grad().to_dense();
  }
  const auto classes = comm::split_range(kClasses, group.size(), group.rank());
  EXPECT_NEAR(loss.item<double>(), oracle.loss.item<double>(), 1e-11);
  EXPECT_TRUE(at::allclose(features.grad(), oracle.features.grad().slice(0, begin, end), 1e-10, 1e-12));
  EXPECT_TRUE(at::allclose(gradient, oracle.weight.grad().slice(0, classes.first, classes.second), 1e-10, 1e-12));
}

TEST(ClassSampler, LossAndGradientsAreThoseOfTheSampledClasses) {
  const int64_t kAll = 1 << 20;
  const std::vector<SampledForm> forms = {{{0.3, false}, {kAll, 0}}, {{0.3, false}, {0, 3}}, {{0.3, true}, {kAll, 0}},
                                          {{0.3, true}, {0, 3}},     {{1e-9, true}, {0, 3}}, {{0.3, true}, {600, 2}}};
  for (const auto& form : forms) {
    for (int world = 1; world <= 5; ++world) {
      for (const bool in_backward : {false, true}) {
        SCOPED_TRACE(testing::Message() << "rate " << form.sampling.rate << ", ranks " << world);
        comm::run_ranks(world, [&](comm::ProcessGroup& group) { expect_equal(form, in_backward, group); });
      }
    }
  }
}

/// Jean et al.: with the correction the sum of the exponentials is expected to be that of all classes.
TEST(ClassSampler, TheCorrectionTakesTheBiasOfTheSumAway) {
  const auto group = comm::make_single_group();
  auto x = at::empty({1, kDim}, at::kDouble);
  fill_normal_(x, 1.0, 3, 7);
  const std::vector<int64_t> sizes = {1};
  std::array<double, 3> sums{};  // all classes; sampled; corrected
  const auto add = [&](std::optional<Sampling> sampling, int64_t step, double& sum) {
    ClassShardedHead head({.classes = kClasses,
                           .dim = kDim,
                           .scoring = normalised_softmax(3),
                           .sampling = sampling,
                           .seed = kSeed,
                           .dtype = at::kDouble},
                          *group);
    head.set_step(step);
    const double target = class_scores(x, head.parameter().tensor.detach(), normalised_softmax(3))[4].item<double>();
    sum += std::exp(head.loss(x, ids({4}), sizes).item<double>() + target);
  };
  constexpr int64_t kSteps = 2000;
  add(std::nullopt, 0, sums[0]);
  for (int64_t step = 0; step < kSteps; ++step) {
    add(Sampling{0.25, false}, step, sums[1]);
    add(Sampling{0.25, true}, step, sums[2]);
  }
  EXPECT_NEAR(sums[2] / kSteps / sums[0], 1.0, 0.03);
  EXPECT_LT(sums[1] / kSteps / sums[0], 0.4);
}

TEST(ClassSampler, WhileTestingAllClassesAreScored) {
  const auto group = comm::make_single_group();
  const std::vector<int64_t> sizes = {1};
  const auto x = at::ones({1, kDim}, at::kDouble);
  const auto loss_of = [&](std::optional<Sampling> sampling) {
    ClassShardedHead head({.classes = kClasses, .dim = kDim, .sampling = sampling, .dtype = at::kDouble}, *group);
    head.set_training(false);
    return head.loss(x, ids({4}), sizes).item<double>();
  };
  EXPECT_EQ(loss_of(Sampling{0.1}), loss_of(std::nullopt));
}

TEST(ClassSampler, FaultsAreNamed) {
  const auto group = comm::make_single_group();
  EXPECT_EQ(test::text_of([] { sample_classes({0.0}, 1, 0, 0, 5, ids({})); }),
            "class sampling: rate is 0, wanted above 0 and at most 1");
  const auto w = at::ones({4, 2}, at::kDouble), x = at::ones({1, 2}, at::kDouble);
  auto smoothed = plain_softmax();
  smoothed.smoothing = 0.1;
  const LossOptions sampled = {.sample = ClassSample{ids({1}), 1, 0}};
  EXPECT_EQ(test::text_of([&] { sharded_softmax_loss(x, w, ids({1}), 0, 4, smoothed, *group, sampled); }),
            "softmax loss: smoothing is over all classes, wanted 0 where only some are sampled");
  EXPECT_EQ(test::text_of([&] { sharded_softmax_loss(x, w, ids({2}), 0, 4, plain_softmax(), *group, sampled); }),
            "softmax loss: class 2 of this rank is a target and not among the sampled ones");
  EXPECT_EQ(test::text_of([&] {
              ClassShardedHead({.classes = 4, .dim = 2, .naive = true, .sampling = Sampling{0.5}}, *group)
                  .loss(at::ones({1, 2}), ids({0}), std::vector<int64_t>{1});
            }),
            "head: the naive form scores all classes, wanted the sharded one to sample");
}

}  // namespace
}  // namespace tandem::classifier
