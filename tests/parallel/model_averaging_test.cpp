#include "tandem/parallel/model_averaging.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tests/parallel/linear_model.h"
#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

constexpr int64_t kSteps = 7;

struct Case {
  int ranks = 1;
  int64_t batch = 1, every = 1;
  std::optional<OuterNesterov> outer = {};
  double decay = LinearModel::kDecay;  // of the inner momentum
  int64_t unify_after = -1;            // a step after which the ranks meet besides
};

/// The same on one device: the ranks' steps one after the other, as the papers have them.
LinearModel simulate(const Case& plan) {
  std::vector<LinearModel> models(plan.ranks);
  auto met = models[0].weight.clone(), velocity = at::zeros_like(met);
  const auto sizes = comm::split_sizes(plan.batch, plan.ranks);
  const auto mean = [&](Tensor LinearModel::*part) {
    auto sum = at::zeros_like(models[0].*part);
    for (int rank = 0; rank < plan.ranks; ++rank) sum.add_(models[rank].*part, static_cast<double>(sizes[rank]));
    return sum.div_(static_cast<double>(plan.batch));
  };
  const auto meet = [&] {
    auto next = mean(&LinearModel::weight);
    if (plan.outer) {
      const auto delta = met - next;
      velocity = velocity * plan.outer->momentum + delta;
      next = met - plan.outer->learning_rate * (delta + plan.outer->momentum * velocity);
    }
    for (auto& model : models) model.weight.copy_(next);
    met = next.clone();
  };
  const auto unify = [&] {
    const auto momentum = mean(&LinearModel::momentum), seen = mean(&LinearModel::seen);
    for (auto& model : models) model.momentum.copy_(momentum), model.seen.copy_(seen);
  };
  int64_t since = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto images = LinearModel::images(step, plan.batch);
    int64_t begin = 0;
    for (int rank = 0; rank < plan.ranks; ++rank) {
      const auto own = images.narrow(0, begin, sizes[rank]);
      begin += sizes[rank];
      if (own.size(0) == 0) continue;
      models[rank].step(models[rank].gradient(own), plan.decay);
      models[rank].seen.copy_(own.mean());
    }
    if (++since == plan.every) meet(), since = 0;
    if (step != plan.unify_after) continue;
    if (since > 0) meet(), since = 0;
    unify();
  }
  if (since > 0) meet();
  if (plan.unify_after != kSteps - 1) unify();
  return models[0];
}

/// Trains over ranks, in `parts` micro-batches, and returns rank 0's model after unify().
LinearModel train(const Case& plan, int64_t parts, comm::ProcessGroup& group) {
  LinearModel model;
  model.weight.set_requires_grad(true);
  const auto parameter = Parameter::replicated("weight", model.weight);
  const std::vector<Parameter> optimizer = {parameter.beside("momentum", model.momentum)};
  ModelAveraging sync({parameter}, {model.seen}, group, {.every = plan.every, .outer = plan.outer});
  const auto sizes = comm::split_sizes(plan.batch, plan.ranks);
  const int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + group.rank(), int64_t{0});
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto own = LinearModel::images(step, plan.batch).narrow(0, begin, sizes[group.rank()]);
    model.run(sync, own, parts, plan.batch);
    const at::NoGradGuard no_grad;
    if (model.weight.grad().defined()) model.step(model.weight.grad(), plan.decay);
    if (own.size(0) > 0) model.seen.copy_(own.mean());
    model.weight.mutable_grad().reset();
    sync.after_step();
    if (step == plan.unify_after) sync.unify(optimizer);
  }
  sync.unify(optimizer);
  return model;
}

void expect_simulated(const Case& plan, int64_t parts) {
  const auto expected = simulate(plan);
  comm::run_ranks(plan.ranks, [&](comm::ProcessGroup& group) {
    const auto found = train(plan, parts, group);
    const auto place = " ranks " + std::to_string(plan.ranks) + " batch " + std::to_string(plan.batch) + " every " +
                       std::to_string(plan.every) + " parts " + std::to_string(parts);
    EXPECT_TRUE(at::allclose(found.weight.detach(), expected.weight, 0, 1e-12)) << place;
    EXPECT_TRUE(at::allclose(found.momentum, expected.momentum, 0, 1e-12)) << place;
    EXPECT_TRUE(at::allclose(found.seen, expected.seen, 0, 1e-12)) << place;
  });
}

/// Batches of 11 images: uneven from 2 ranks up; of 3 images: the fourth rank has none.
TEST(ModelAveraging, EqualsASimulationOnOneDevice) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int64_t batch : {11, 3}) {
      for (const int64_t every : {1, 3, 100}) {
        for (const auto& outer : {std::optional<OuterNesterov>(), std::optional(OuterNesterov{0.7, 0.9})}) {
          expect_simulated({ranks, batch, every, outer}, 1);
          expect_simulated({ranks, batch, every, outer, LinearModel::kDecay, /*unify_after=*/3}, 2);
        }
      }
    }
  }
}

TEST(ModelAveraging, AtEveryStepWithPlainSgdIsDataParallel) {
  auto one = simulate({.ranks = 1, .batch = 11, .every = 1, .decay = 0.0});
  for (const int ranks : {2, 3, 4, 5}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const auto found = train({.ranks = ranks, .batch = 11, .every = 1, .decay = 0.0}, 1, group);
      EXPECT_TRUE(at::allclose(found.weight.detach(), one.weight, 0, 1e-12)) << ranks;
    });
  }
}

/// An outer step of rate 1 without momentum ends at the mean.
TEST(ModelAveraging, AnOuterStepOfRateOneIsTheMean) {
  const auto mean = simulate({.ranks = 3, .batch = 11, .every = 3});
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const auto found = train({.ranks = 3, .batch = 11, .every = 3, .outer = OuterNesterov{1.0, 0.0}}, 1, group);
    EXPECT_TRUE(at::allclose(found.weight.detach(), mean.weight, 0, 1e-12));
  });
}

/// Sums over the ranks: a meeting 2 (N - 1) S, of weights alone; unify() also the optimizer's state and buffers, once.
TEST(ModelAveraging, SendsWhatItSays) {
  constexpr int kRanks = 3;
  constexpr int64_t kNumbers = 1200, kBytes = 4 * kNumbers;
  std::array<std::array<int64_t, kRanks>, 4> sent{};
  comm::run_ranks(kRanks, [&](comm::ProcessGroup& group) {
    const auto weight = at::ones({kNumbers / 4, 4}).t().requires_grad_(), seen = at::zeros({60});
    const auto count = at::zeros({}, at::kLong);
    const auto parameter = Parameter::replicated("weight", weight);
    ModelAveraging sync({parameter, Parameter::replicated("frozen", at::ones({90}))}, {seen, count}, group,
                        {.every = 3});
    const auto momentum = parameter.beside("momentum", at::zeros({4, kNumbers / 4}));
    const auto split = Parameter::split("split", at::zeros({1, 2}), {0, group.rank(), 1, kRanks});
    const auto bytes = [&] {
      int64_t sum = 0;
      for (const auto& [operation, sums] : group.meter().counts()) sum += sums.bytes;
      group.meter().reset();
      return sum;
    };
    const auto step = [&] {
      sync.before_forward({});
      sync.before_backward({});
      sync.after_backward({});
      sync.after_step();
    };
    bytes();
    step(), step();
    sent[0][group.rank()] = bytes();
    step();
    sent[1][group.rank()] = bytes();
    step();
    for (const size_t place : {2, 3}) {
      sync.unify({momentum, split});
      sent[place][group.rank()] = bytes();
    }
    count.add_(1 + group.rank());
    step();
    sync.unify();
    EXPECT_EQ(count.item<int64_t>(), 1);  // rank 0's
    EXPECT_TRUE(at::allclose(weight, at::ones_like(weight)));
  });
  const auto sum_of = [&](size_t place) { return std::accumulate(sent[place].begin(), sent[place].end(), int64_t{0}); };
  const int64_t buffers = 2 * (kRanks - 1) * 60 * 4 + (kRanks - 1) * 8;
  EXPECT_EQ(sum_of(0), 0);
  EXPECT_EQ(sum_of(1), 2 * (kRanks - 1) * kBytes);
  EXPECT_EQ(sum_of(2), 4 * (kRanks - 1) * kBytes + buffers);
  EXPECT_EQ(sum_of(3), 0);
}

TEST(ModelAveraging, RefusesOptionsOutOfRange) {
  const auto group = comm::make_single_group();
  const auto text = [&](const ModelAveragingOptions& options) {
    return test::text_of<SettingsError>([&] { ModelAveraging({}, {}, *group, options); });
  };
  EXPECT_EQ(text({.every = 0}), "every is 0, wanted 1 step or more between meetings");
  EXPECT_EQ(text({.outer = OuterNesterov{0, 0.9}}), "outer learning rate is 0.000000, wanted more than 0");
  EXPECT_EQ(text({.outer = OuterNesterov{0.7, 1}}), "outer momentum is 1.000000, wanted 0 or more and less than 1");
}

}  // namespace
}  // namespace tandem::parallel
