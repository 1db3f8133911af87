#include "tandem/parallel/post_local_sgd.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tests/parallel/linear_model.h"
#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

constexpr int64_t kSteps = 8;

struct Case {
  int ranks = 1;
  int64_t batch = 11;
  PostLocalSgdOptions options;
};

/// The ranks' steps one after the other, on one device.
LinearModel simulate(const Case& plan) {
  const auto sizes = comm::split_sizes(plan.batch, plan.ranks);
  std::vector<LinearModel> models(static_cast<size_t>(plan.ranks));
  std::vector<int64_t> since(models.size(), 0);  // samples since the last mean
  const auto mean = [&](Tensor LinearModel::*part, const std::vector<int64_t>& samples) {
    auto sum = at::zeros_like(models[0].*part);
    for (size_t rank = 0; rank < models.size(); ++rank) {
      sum.add_(models[rank].*part, static_cast<double>(samples[rank]));
    }
    sum.div_(static_cast<double>(std::accumulate(samples.begin(), samples.end(), int64_t{0})));
    for (auto& model : models) (model.*part).copy_(sum);
  };
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto images = LinearModel::images(step, plan.batch);
    const bool is_apart = step >= plan.options.start;
    int64_t begin = 0;
    for (size_t rank = 0; rank < models.size(); ++rank) {
      const auto own = images.narrow(0, begin, sizes[rank]);
      begin += sizes[rank];
      if (own.size(0) > 0) models[rank].seen.copy_(own.mean());
      if (is_apart && own.size(0) == 0) continue;
      models[rank].step(models[rank].gradient(is_apart ? own : images));
      if (is_apart) since[rank] += own.size(0);
    }
    if (!is_apart || (step - plan.options.start) % plan.options.every != 0) continue;
    mean(&LinearModel::weight, since);
    std::ranges::fill(since, 0);
  }
  if (kSteps <= plan.options.start) {  // buffers are rank 0's
    for (auto& model : models) model.seen.copy_(models[0].seen);
    return models[0];
  }
  if (std::accumulate(since.begin(), since.end(), int64_t{0}) > 0) mean(&LinearModel::weight, since);
  mean(&LinearModel::momentum, sizes);
  mean(&LinearModel::seen, sizes);
  return models[0];
}

/// In `parts` micro-batches. Returns this rank's model after unify().
LinearModel train(const Case& plan, int64_t parts, bool is_view, comm::ProcessGroup& group) {
  LinearModel model;
  model.weight.set_requires_grad(true);
  const auto parameter = Parameter::replicated("weight", model.weight);
  DistributedDataParallelOptions ddp;
  ddp.gradient_as_bucket_view = is_view;
  PostLocalSgd sync({parameter}, {model.seen}, group, ddp, plan.options);
  const auto sizes = comm::split_sizes(plan.batch, plan.ranks);
  const int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + group.rank(), int64_t{0});
  for (int64_t step = 0; step < kSteps; ++step) {
    auto context = current_context();
    context.step = step;
    const ContextScope scope(context);
    const auto own = LinearModel::images(step, plan.batch).narrow(0, begin, sizes[group.rank()]);
    model.run(sync, own, parts, plan.batch);
    EXPECT_EQ(sync.is_synchronous(), step < plan.options.start);
    const at::NoGradGuard no_grad;
    if (model.weight.grad().defined()) model.step(model.weight.grad());
    if (own.size(0) > 0) model.seen.copy_(own.mean());
    model.weight.mutable_grad().reset();
    sync.after_step();
  }
  sync.unify({parameter.beside("momentum", model.momentum)});
  return model;
}

/// Batches of 11 images: uneven from 2 ranks up; of 3 images: the fourth rank has none.
TEST(PostLocalSgd, EqualsASimulationOnOneDevice) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int64_t batch : {11, 3}) {
      for (const auto& options : {PostLocalSgdOptions{0, 1}, {0, 3}, {2, 3}, {3, 2}, {7, 4}, {100, 4}}) {
        const Case plan = {ranks, batch, options};
        const auto expected = simulate(plan);
        for (const int64_t parts : {1, 2}) {
          comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
            const auto found = train(plan, parts, /*is_view=*/parts == 1, group);
            const auto place = " ranks " + std::to_string(ranks) + " batch " + std::to_string(batch) + " start " +
                               std::to_string(options.start) + " every " + std::to_string(options.every);
            EXPECT_TRUE(at::allclose(found.weight.detach(), expected.weight, 0, 1e-12)) << place;
            EXPECT_TRUE(at::allclose(found.momentum, expected.momentum, 0, 1e-12)) << place;
            EXPECT_TRUE(at::allclose(found.seen, expected.seen, 0, 1e-12)) << place;
          });
        }
      }
    }
  }
}

/// 2 (N - 1) S in each step before the start and for each mean, nothing in the steps between; the start is no mean.
TEST(PostLocalSgd, SendsWhatItSays) {
  constexpr int kRanks = 3;
  constexpr int64_t kNumbers = 1200, kBytes = 2 * (kRanks - 1) * 4 * kNumbers;
  std::array<std::array<int64_t, kSteps>, kRanks> sent{};
  comm::run_ranks(kRanks, [&](comm::ProcessGroup& group) {
    const auto weight = at::ones({kNumbers}).requires_grad_();
    PostLocalSgd sync({Parameter::replicated("weight", weight)}, {}, group, {}, {.start = 2, .every = 3});
    EXPECT_EQ(sync.memory().owned_gradients.size(), 1U);
    for (int64_t step = 0; step < kSteps; ++step) {
      auto context = current_context();
      context.step = step;
      const ContextScope scope(context);
      group.meter().reset();
      sync.before_forward({});
      const auto loss = weight.sum();
      sync.before_backward(loss);
      loss.backward();
      sync.after_backward({});
      weight.mutable_grad().reset();
      sync.after_step();
      for (const auto& [operation, sums] : group.meter().counts()) sent[group.rank()][step] += sums.bytes;
    }
  });
  for (int64_t step = 0; step < kSteps; ++step) {
    int64_t all = 0;
    for (const auto& own : sent) all += own[step];
    const bool sends = step < 2 || step == 2 || step == 5;
    EXPECT_EQ(all, sends ? kBytes : 0) << "step " << step;
  }
}

void run_step(PostLocalSgd& sync, int64_t step, const Tensor& loss, bool is_left_out = false) {
  auto context = current_context();
  context.step = step;
  const ContextScope scope(context);
  sync.before_forward({});
  sync.before_backward(loss);
  loss.backward();
  sync.after_backward({});
  if (!is_left_out) sync.after_step();
}

/// A step that is left out has no end: its mean comes after the next.
TEST(PostLocalSgd, AMeanIsNotLostWithAStep) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    for (const int64_t lost : {2, 5, 6}) {
      const auto weight = at::ones({3}).requires_grad_();
      PostLocalSgd sync({Parameter::replicated("weight", weight)}, {}, group, {}, {.start = 2, .every = 3});
      std::vector<int64_t> means;
      for (int64_t step = 0; step < 10; ++step) {
        group.meter().reset();
        run_step(sync, step, weight.sum(), step == lost);
        if (step >= 2 && !group.meter().counts().empty()) means.push_back(step);
        weight.mutable_grad().reset();
      }
      const auto moved = [&](int64_t step) { return step == lost ? step + 1 : step; };
      EXPECT_EQ(means, (std::vector<int64_t>{moved(2), moved(5), 8})) << lost;
    }
  });
}

TEST(PostLocalSgd, WhatAStepApartLeavesOutHasNoGradient) {
  for (const bool is_view : {true, false}) {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const auto used = at::ones({3}).requires_grad_(), unused = at::ones({2}).requires_grad_();
      const std::vector<Parameter> parameters = {Parameter::replicated("used", used),
                                                 Parameter::replicated("unused", unused)};
      const DistributedDataParallelOptions find = {.gradient_as_bucket_view = is_view, .find_unused_parameters = true};
      PostLocalSgd sync(parameters, {}, group, find, {.start = 1, .every = 2});
      for (int64_t step = 0; step < 4; ++step) {
        run_step(sync, step, used.sum());
        EXPECT_TRUE(used.grad().equal(at::full({3}, 2.0)));
        EXPECT_FALSE(unused.grad().defined()) << step;
        for (const auto& tensor : {used, unused}) tensor.mutable_grad().reset();
      }
      PostLocalSgd strict(parameters, {}, group, {.gradient_as_bucket_view = is_view}, {.start = 0, .every = 2});
      EXPECT_EQ(test::text_of<c10::ValueError>([&] { run_step(strict, 0, used.sum()); }),
                "parameter unused of the model has no gradient after backward, wanted one: use it in the loss of every "
                "step, set find_unused_parameters, or freeze it with requires_grad_(false) before training");
    });
  }
}

TEST(PostLocalSgd, RefusesOptionsOutOfRange) {
  const auto group = comm::make_single_group();
  const auto text = [&](const PostLocalSgdOptions& options) {
    return test::text_of<SettingsError>([&] { PostLocalSgd({}, {}, *group, {}, options); });
  };
  EXPECT_EQ(text({.start = -1}), "local_start is -1, wanted 0 or more steps");
  EXPECT_EQ(text({.every = 0}), "local_every is 0, wanted 1 step or more between means");
}

}  // namespace
}  // namespace tandem::parallel
