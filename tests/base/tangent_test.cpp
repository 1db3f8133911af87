#include "tandem/base/tangent.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <thread>

#include "tandem/base/rng.h"

namespace tandem {
namespace {

using torch::autograd::grad;

Tensor random(const std::vector<int64_t>& sizes, uint64_t stream) {
  const auto values = at::empty(sizes, at::kDouble);
  fill_normal_(values, 1.0, 19, stream);
  return values;
}

TEST(Tangent, TravelsForwardAndIsDifferentiatedBackward) {
  const auto w = random({3, 4}, 1), along = random({3, 4}, 2), x = random({2, 3}, 3).requires_grad_();
  {
    const TangentScope scope({w}, {along});
    const auto y = at::mm(x, w).sin().sum();
    const auto expected = (at::mm(x, primal_of(w)).cos() * at::mm(x, along)).sum();
    EXPECT_TRUE(tangent_of(y).allclose(expected));
    const auto tangent = tangent_of(y);
    const c10::AutoFwGradMode no_tangents(false);
    EXPECT_TRUE(grad({tangent}, {x})[0].allclose(grad({expected}, {x})[0]));
  }
  EXPECT_FALSE(tangent_of(w).defined());
}

TEST(Tangent, IsPartOfAValueUntilTheScopeEnds) {
  const auto w = random({3}, 1), other = random({3}, 2);
  Tensor y;
  {
    const TangentScope scope({w}, {other});
    y = w * 2;
    EXPECT_TRUE(tangent_of(y).equal(other * 2));
    EXPECT_FALSE(tangent_of(primal_of(y)).defined());
    EXPECT_TRUE(tangent_of(with_tangent(primal_of(y), other)).equal(other));
    EXPECT_FALSE(tangent_of(with_tangent(primal_of(y), {})).defined());
  }
  EXPECT_FALSE(tangent_of(y).defined());
  EXPECT_FALSE(tangent_of(Tensor()).defined());
}

TEST(Tangent, ThreadsHaveScopesOfTheirOwn) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      for (int i = 0; i < 200; ++i) {
        const auto w = at::full({2}, 1.0 * thread), along = at::full({2}, 1.0 * i);
        const TangentScope scope({w}, {along});
        EXPECT_TRUE(tangent_of(w * w).equal(2.0 * thread * along));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

/// Value, gradient, and the gradient of the tangent along `along`, by x.
std::vector<Tensor> by_tangents(const std::function<Tensor(const Tensor&)>& function, const Tensor& x,
                                const Tensor& along) {
  const auto leaf = x.clone().requires_grad_();
  const TangentScope scope({leaf}, {along});
  const auto y = function(leaf), primal = primal_of(y), tangent = tangent_of(y);
  const c10::AutoFwGradMode no_tangents(false);
  return {y.detach(), grad({primal}, {leaf}, {}, /*retain_graph=*/true)[0], grad({tangent}, {leaf})[0]};
}

std::vector<Tensor> twice_backward(const std::function<Tensor(const Tensor&)>& function, const Tensor& x,
                                   const Tensor& along) {
  const auto leaf = x.clone().requires_grad_();
  const auto y = function(leaf);
  const auto first = grad({y}, {leaf}, {}, std::nullopt, /*create_graph=*/true)[0];
  return {y.detach(), first.detach(), grad({first}, {leaf}, {along})[0]};
}

TEST(Tangent, OfTheCrossEntropyEqualsThatOfTorchTwiceBackward) {
  const auto targets = at::tensor({1, -1, 4, 0, 4}, at::kLong);
  const auto scores = random({5, 6}, 1) * 30, along = random({5, 6}, 2);
  for (const double smoothing : {0.0, 0.1}) {
    const auto own = by_tangents([&](const Tensor& x) { return differentiable_cross_entropy(x, targets, smoothing); },
                                 scores, along);
    const auto torchs = twice_backward(
        [&](const Tensor& x) { return at::cross_entropy_loss(x, targets, {}, at::Reduction::Mean, -1, smoothing); },
        scores, along);
    for (size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(own[i].allclose(torchs[i], 1e-10, 1e-12)) << i;
  }
}

TEST(Tangent, NoCountedRowHasNoLoss) {
  const auto scores = random({2, 3}, 1).requires_grad_();
  const auto loss = differentiable_cross_entropy(scores, at::full({2}, -1, at::kLong), 0.1);
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_EQ(grad({loss}, {scores})[0].abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace tandem
