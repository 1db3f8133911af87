#include "tandem/search/architect.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tandem/base/error.h"
#include "tandem/base/tangent.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tandem/models/backbone.h"
#include "tests/search/smooth_network.h"
#include "tests/support/text_of.h"

namespace tandem::search {
namespace {

using test_search::batch_of;
using test_search::relative_difference;
using test_search::sharded_batch_of;
using test_search::SmoothModule;
using test_search::task_of;
using torch::autograd::grad;

constexpr int64_t kTraining = 13, kValidation = 11;

std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> all;
  for (const auto& tensor : tensors) all.push_back(tensor.detach().clone());
  return all;
}

VirtualStep step_of(const SmoothModule& net, bool nesterov = false) {
  VirtualStep step{.rate = 0.3, .momentum = 0.9, .weight_decay = 0.01, .nesterov = nesterov};
  for (const auto& weight : net.weights()) step.velocity.push_back(weight.detach().sin() * 0.1);
  return step;
}

/// The gradient by differentiation through the step, on one device.
Tensor reference(const VirtualStep& step, double* loss = nullptr) {
  const SmoothModule net;
  const auto weights = net.weights();
  const auto shares = net.alphas().softmax(1);
  const auto first = grad({net.loss(weights, shares, batch_of(kTraining, 1))}, weights, {}, std::nullopt, true);
  std::vector<Tensor> moved;
  for (size_t i = 0; i < first.size(); ++i) {
    const auto move = first[i] + weights[i].detach() * step.weight_decay;
    const auto velocity = step.velocity[i] * step.momentum + move;
    moved.push_back(weights[i].detach() - (step.nesterov ? velocity * step.momentum + move : velocity) * step.rate);
  }
  const auto validation = net.loss(moved, shares, batch_of(kValidation, 2));
  if (loss != nullptr) *loss = validation.item<double>();
  return grad({validation}, {net.alphas()})[0];
}

struct Answer {
  double loss = 0;
  Tensor gradient;
};

/// Of rank 0; the others must have the same bits.
Answer on_ranks(int ranks, const ArchitectOptions& options, bool nesterov = false) {
  std::vector<Answer> answers(ranks);
  comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
    const auto net = std::make_shared<SmoothModule>();
    const auto task = task_of(net, options.shards > 0, group.rank());
    Architect architect(*task, options, group);
    const auto part = [&](int64_t samples, uint64_t stream) {
      return options.shards > 0 ? sharded_batch_of(samples, stream, options.shards, group.rank(), ranks)
                                : batch_of(samples, stream, group.rank(), ranks);
    };
    auto& answer = answers[group.rank()];
    answer.loss = architect.run(part(kTraining, 1), part(kValidation, 2), step_of(*net, nesterov));
    answer.gradient = net->alphas().grad().clone();
  });
  for (const auto& answer : answers) {
    EXPECT_EQ(answer.loss, answers[0].loss);
    EXPECT_TRUE(answer.gradient.equal(answers[0].gradient));
  }
  return answers[0];
}

TEST(Architect, TheExactProductEqualsDifferentiationThroughTheStep) {
  for (const bool nesterov : {false, true}) {
    double loss = 0;
    const auto expected = reference(step_of(SmoothModule(), nesterov), &loss);
    const auto answer = on_ranks(1, {}, nesterov);
    EXPECT_LT(relative_difference(answer.gradient, expected), 1e-14) << nesterov;
    EXPECT_NEAR(answer.loss, loss, 1e-15);
  }
}

TEST(Architect, TheErrorOfDifferencesFallsAsTheSquareOfTheRadius) {
  const auto expected = reference(step_of(SmoothModule()));
  const auto error = [&](double radius) {
    return relative_difference(on_ranks(1, {.product = Product::differences, .radius = radius}).gradient, expected);
  };
  double before = error(1e-1);
  EXPECT_GT(before, 1e-6) << "too smooth to tell";
  for (const double radius : {1e-2, 1e-3, 1e-4}) {
    const double now = error(radius);
    EXPECT_LT(now, before / 80);
    EXPECT_GT(now, before / 120);
    before = now;
  }
  EXPECT_LT(error(1e-5), 1e-9);
}

/// What pt.darts computes: however small the radius, no more than the direct gradient at w'.
TEST(Architect, TheMultipliedFormIsOfFirstOrder) {
  const SmoothModule net;
  const auto step = step_of(net);
  const auto exact = reference(step);
  const auto shares = net.alphas().softmax(1);
  auto moved = copies(net.weights());
  const auto first = grad({net.loss(net.weights(), shares, batch_of(kTraining, 1))}, net.weights(), {}, true);
  for (size_t i = 0; i < moved.size(); ++i) {
    moved[i] -= (step.velocity[i] * step.momentum + first[i] + moved[i] * step.weight_decay) * step.rate;
  }
  const auto direct = grad({net.loss(moved, shares, batch_of(kValidation, 2))}, {net.alphas()})[0];
  const double product = relative_difference(direct, exact);
  EXPECT_GT(product, 1e-3) << "the product does not matter here";
  for (const double radius : {1e-2, 1e-4}) {
    const auto multiplied = on_ranks(1, {.product = Product::multiplied, .radius = radius}).gradient;
    EXPECT_LT(relative_difference(multiplied, direct), 1e-2 * product);
    EXPECT_GT(relative_difference(multiplied, exact), 0.9 * product);
  }
}

TEST(Architect, RanksWithUnevenPartsHaveTheGradientOfOneDevice) {
  const auto expected = reference(step_of(SmoothModule()));
  for (const auto product : {Product::exact, Product::differences}) {
    for (const int64_t accumulate : {1, 3}) {
      const ArchitectOptions options{.product = product, .accumulate = accumulate};
      const auto one = on_ranks(1, options).gradient;
      for (const int ranks : {2, 3, 4}) {
        const auto several = on_ranks(ranks, options).gradient;
        EXPECT_LT(relative_difference(several, one), 1e-12) << ranks << " ranks, " << accumulate << " micro-batches";
        if (product == Product::exact) {
          EXPECT_LT(relative_difference(several, expected), 1e-12);
        }
      }
    }
  }
}

TEST(Architect, ShardsGiveTheSameBitsOnEachNumberOfRanks) {
  for (const auto product : {Product::exact, Product::differences}) {
    const ArchitectOptions options{.product = product, .shards = 6};
    const auto one = on_ranks(1, options);
    EXPECT_LT(relative_difference(one.gradient, on_ranks(1, {.product = product}).gradient), 1e-10);
    for (const int ranks : {2, 3, 6}) {
      const auto several = on_ranks(ranks, options);
      EXPECT_EQ(one.loss, several.loss);
      EXPECT_TRUE(one.gradient.equal(several.gradient)) << ranks;
    }
  }
}

TEST(Architect, TheFirstOrderIsTheGradientAtTheWeightsAsTheyAre) {
  const SmoothModule net;
  const auto loss = net.loss(net.weights(), net.alphas().softmax(1), batch_of(kValidation, 2));
  EXPECT_LT(relative_difference(on_ranks(3, {.order = 1}).gradient, grad({loss}, {net.alphas()})[0]), 1e-13);
}

/// Which of the sums over the ranks a step does without.
enum class LeftOut { nothing, gradient, vector, direct, product, shares };

/// The algorithm stated anew, one sum at a time, to see that a missing one shows.
Tensor without(LeftOut left_out, int ranks) {
  Tensor result;
  comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
    const SmoothModule net;
    const auto step = step_of(net);
    const auto weights = net.weights();
    const auto train = batch_of(kTraining, 1, group.rank(), ranks), val = batch_of(kValidation, 2, group.rank(), ranks);
    const auto share = [&](const data::Batch& batch) {
      const auto own = static_cast<double>(batch.images.size(0));
      return left_out == LeftOut::shares ? 1.0 / ranks : own / static_cast<double>(batch.global_size);
    };
    const auto sum = [&](std::vector<Tensor> tensors, LeftOut one) {
      for (auto& tensor : tensors) {
        tensor = left_out == one ? tensor * ranks : comm::all_reduce(tensor.detach(), group);
      }
      return tensors;
    };
    const auto shares = net.alphas().softmax(1);
    const auto first = grad({net.loss(weights, shares, train) * share(train)}, weights, {}, true, true);
    const auto whole = sum(copies(first), LeftOut::gradient);
    std::vector<Tensor> moved;
    for (size_t i = 0; i < whole.size(); ++i) {
      const auto move = whole[i] + weights[i].detach() * step.weight_decay + step.velocity[i] * step.momentum;
      moved.push_back((weights[i].detach() - move * step.rate).requires_grad_());
    }
    const auto loss = net.loss(moved, shares, val) * share(val);
    const auto vector = sum(grad({loss}, moved, {}, true), LeftOut::vector);
    const auto direct = sum(grad({loss}, {net.alphas()}, {}, true), LeftOut::direct);
    const auto product = sum(grad(first, {net.alphas()}, vector), LeftOut::product);
    if (group.rank() == 0) result = direct[0] - product[0] * step.rate;
  });
  return result;
}

TEST(Architect, EachSumOverTheRanksCounts) {
  const auto expected = reference(step_of(SmoothModule()));
  EXPECT_LT(relative_difference(without(LeftOut::nothing, 3), expected), 1e-13);
  for (const auto one : {LeftOut::gradient, LeftOut::vector, LeftOut::direct, LeftOut::product, LeftOut::shares}) {
    EXPECT_GT(relative_difference(without(one, 3), expected), 1e-6) << static_cast<int>(one);
  }
}

/// Features of a network of a search are the scores.
std::unique_ptr<train::Task> supernet_task(const std::shared_ptr<models::Backbone>& net) {
  return std::make_unique<train::ModuleTask>(net, net->chain(), [](const Tensor& scores, const Tensor& labels) {
    return differentiable_cross_entropy(scores, labels);
  });
}

/// With batch norms: the weights come back bit by bit, and no pass moves a running statistic.
TEST(Architect, LeavesTheNetworkAsItIs) {
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    const auto net = models::make(
        {.name = "search:darts", .channels = 2, .size = 8, .embedding = 3, .cells = 3, .cell_channels = 16});
    const auto task = supernet_task(net);
    auto batch = batch_of(6, 1);
    batch.images = at::constant_pad_nd(batch.images, {1, 1, 1, 1});
    for (const auto product : {Product::exact, Product::differences}) {
      const auto weights = copies(net->parameters()), buffers = copies(net->buffers());
      Architect architect(*task, {.product = product}, group);
      EXPECT_GT(architect.run(batch, batch, {.rate = 0.1, .momentum = 0.9, .weight_decay = 1e-3}), 0);
      for (size_t i = 0; i < weights.size(); ++i) EXPECT_TRUE(net->parameters()[i].equal(weights[i])) << i;
      for (size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(net->buffers()[i].equal(buffers[i])) << i;
      for (const auto& weight : architect.weights()) EXPECT_FALSE(weight.tensor.grad().defined()) << weight.name;
      for (const auto& alpha : architect.alphas()) {
        EXPECT_FALSE(alpha.tensor.requires_grad());
        EXPECT_GT(alpha.tensor.grad().abs().max().item<double>(), 0) << alpha.name;
        alpha.tensor.mutable_grad().reset();
      }
    }
  });
}

TEST(Architect, ARankWithoutSamplesTakesPart) {
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const auto net = models::make(
        {.name = "search:darts", .channels = 2, .size = 8, .embedding = 3, .cells = 3, .cell_channels = 4});
    const auto task = supernet_task(net);
    auto batch = batch_of(2, 1, group.rank(), 3);
    batch.images = at::constant_pad_nd(batch.images, {1, 1, 1, 1});
    Architect architect(*task, {}, group);
    if (group.rank() < 2) batch.images = at::cat({batch.images, batch.images + 1});
    if (group.rank() < 2) batch.labels = at::cat({batch.labels, batch.labels});
    batch.global_size = 4;
    EXPECT_TRUE(std::isfinite(architect.run(batch, batch, {.rate = 0.1})));
  });
}

/// An error amid the passes, where the weights are others.
TEST(Architect, AnErrorLeavesTheWeightsAsTheyWere) {
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    const auto net = std::make_shared<SmoothModule>();
    const auto task = task_of(net);
    const auto before = copies(net->weights());
    Architect architect(*task, {}, group);
    auto spoilt = batch_of(kValidation, 2);
    spoilt.labels = at::full({kValidation}, 99);
    EXPECT_THROW(architect.run(batch_of(kTraining, 1), spoilt, step_of(*net)), DataError);
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(net->weights()[i].equal(before[i])) << i;
    EXPECT_FALSE(net->alphas().requires_grad());
  });
}

TEST(Architect, TheProductWithTheHessianOfTheAlphasEqualsDifferences) {
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    const auto net = std::make_shared<SmoothModule>();
    const auto task = task_of(net);
    Architect architect(*task, {}, group);
    const auto along = net->alphas().detach().cos();
    const auto product = architect.hessian_product(batch_of(kValidation, 2, group.rank(), 2), {along});
    const auto gradient_at = [&](double distance) {
      const auto alphas = (net->alphas().detach() + along * distance).requires_grad_();
      return grad({net->loss(net->weights(), alphas.softmax(1), batch_of(kValidation, 2))}, {alphas})[0];
    };
    const double e = 1e-4;
    EXPECT_LT(relative_difference(product[0], (gradient_at(e) - gradient_at(-e)) / (2 * e)), 1e-6);
    const auto alphas = net->alphas().detach().requires_grad_();
    const auto loss = net->loss(net->weights(), alphas.softmax(1), batch_of(kValidation, 2));
    const auto first = grad({loss}, {alphas}, {}, std::nullopt, /*create_graph=*/true);
    EXPECT_LT(relative_difference(product[0], grad(first, {alphas}, {along})[0]), 1e-12);
  });
}

TEST(Architect, BadOptionsAreRefused) {
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    const auto task = task_of(std::make_shared<SmoothModule>());
    const auto refused = [&](const ArchitectOptions& options) {
      return test::text_of<SettingsError>([&] { Architect(*task, options, group); });
    };
    EXPECT_EQ(refused({.order = 3}), "order is 3, wanted 1 or 2");
    EXPECT_EQ(refused({.radius = 0}), "radius is 0.000000, wanted more than 0");
    const auto plain = models::make({.name = "mlp"});
    const auto other = supernet_task(plain);
    EXPECT_EQ(test::text_of<c10::ValueError>([&] { Architect(*other, {}, group); }),
              "architect: the task has no parameter whose name begins with alphas.");
  });
}

}  // namespace
}  // namespace tandem::search
