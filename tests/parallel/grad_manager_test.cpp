#include "tandem/parallel/grad_manager.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

using test::text_of;

TEST(GradManager, DifferentiatesByAttachedTensorsAlone) {
  const auto weight = at::full({2}, 3.0).requires_grad_(), other = at::ones({2}).requires_grad_();
  GradManager manager;
  manager.attach(weight);
  const auto middle = manager.attach(weight * other);
  manager.backward(middle.square().sum());
  EXPECT_TRUE(manager.grad(middle).equal(at::full({2}, 6.0)));
  EXPECT_TRUE(weight.grad().equal(at::full({2}, 6.0)));
  EXPECT_FALSE(other.grad().defined());
  manager.backward(weight.sum());
  EXPECT_TRUE(weight.grad().equal(at::full({2}, 7.0))) << "gradients add up";
}

TEST(GradManager, CallbacksReplaceTheGradientInTheOrderOfAttaching) {
  const auto a = at::ones({1}).requires_grad_(), b = at::ones({1}).requires_grad_();
  GradManager manager;
  std::string calls;
  manager.attach(b, [&](const Tensor& tensor, const Tensor& gradient) {
    EXPECT_TRUE(tensor.is_same(b));
    return calls += "b", 10 * gradient;
  });
  manager.attach(a, [&](const Tensor&, const Tensor&) { return calls += "a", Tensor(); });
  manager.attach(b, [&](const Tensor&, const Tensor& gradient) { return calls += "B", gradient + 1; });
  manager.backward((a * 2 + b * 3).sum());
  EXPECT_EQ(calls, "bBa");
  EXPECT_EQ(a.grad().item<float>(), 2);
  EXPECT_EQ(b.grad().item<float>(), 31);
}

TEST(GradManager, TakesSeveralOutputsWithTheirGradients) {
  const auto x = at::ones({3}, at::kDouble).requires_grad_();
  GradManager manager;
  manager.attach(x);
  const auto dy = at::arange(3, at::kDouble);
  manager.backward({x * 2, x * x}, {dy, at::ones({3}, at::kDouble)});
  EXPECT_TRUE(x.grad().equal(2 * dy + 2));
  manager.backward(x * 5, dy);
  EXPECT_TRUE(x.grad().equal(7 * dy + 2));
}

TEST(GradManager, EachTensorHasAGradientOfItsOwn) {
  const auto a = at::ones({2}).requires_grad_(), b = at::ones({2}).requires_grad_();
  GradManager manager;
  for (const auto& tensor : {a, b}) manager.attach(tensor);
  manager.backward((a + b).sum());
  EXPECT_FALSE(a.grad().is_alias_of(b.grad()));
  EXPECT_TRUE(a.grad().is_non_overlapping_and_dense());
  for (const auto& tensor : {a, b}) tensor.mutable_grad().reset();
  const auto dy = at::ones({2});
  manager.backward(a + b, dy);
  a.grad().mul_(10);
  EXPECT_TRUE(b.grad().equal(at::ones({2})));
  EXPECT_TRUE(dy.equal(at::ones({2})));
}

TEST(GradManager, AGradientMayBeSparse) {
  const auto table = at::ones({5, 2}).requires_grad_();
  GradManager manager;
  manager.attach(table);
  const auto ids = at::tensor({3, 1, 3});
  manager.backward(at::embedding(table, ids, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false, /*sparse=*/true).sum());
  EXPECT_TRUE(table.grad().is_sparse());
  EXPECT_TRUE(table.grad().to_dense().sum(1).equal(at::tensor({0.f, 2.f, 0.f, 4.f, 0.f})));
}

TEST(GradManager, AScopeForgetsWhatItHasSeenAlone) {
  const auto weight = at::ones({2}).requires_grad_();
  GradManager manager;
  manager.attach(weight);
  const auto before = manager.attach(weight * 2);
  Tensor inner;
  {
    const GradManager::Scope scope(manager);
    inner = manager.attach(before * 2);
    manager.release();
    inner = manager.attach(weight * 3);
  }
  manager.backward(weight.sum());
  EXPECT_TRUE(weight.grad().equal(at::ones({2})));
  for (const auto& forgotten : {before, inner}) EXPECT_THROW(manager.grad(forgotten), c10::ValueError);
}

TEST(GradManager, CallbacksOfUnusedTensorsAreGivenZeros) {
  const auto used = at::ones({1}).requires_grad_(), unused = at::ones({2}).requires_grad_(),
             silent = at::ones({1}).requires_grad_();
  GradManager manager;
  manager.attach(used), manager.attach(silent);
  manager.attach(unused, [](const Tensor&, const Tensor& gradient) { return gradient + 1; });
  manager.backward(used.sum());
  EXPECT_TRUE(unused.grad().equal(at::ones({2})));
  EXPECT_FALSE(silent.grad().defined());
  manager.backward(std::vector<Tensor>());
  EXPECT_TRUE(unused.grad().equal(at::full({2}, 2.0)));
}

TEST(GradManager, ScopesAndReleaseForget) {
  const auto weight = at::ones({1}).requires_grad_();
  GradManager manager;
  manager.attach(weight);
  Tensor input = at::ones({1});
  {
    const GradManager::Scope scope(manager);
    manager.attach(input);
    manager.backward((input * weight * 4).sum());
    EXPECT_EQ(manager.grad(input).item<float>(), 4);
  }
  EXPECT_EQ(text_of<c10::ValueError>([&] { manager.grad(input); }),
            "gradient manager: the tensor is not attached, wanted attach() before backward");
  const auto middle = manager.attach(weight * 2);
  manager.release();
  EXPECT_NE(text_of([&] { manager.grad(middle); }), "nothing thrown");
  EXPECT_EQ(manager.grad(weight).item<float>(), 4) << "leaves stay attached";
}

TEST(GradManager, RefusesWhatHasNoGradient) {
  GradManager manager;
  EXPECT_EQ(text_of<c10::TypeError>([&] { manager.attach(at::ones({1}, at::kLong)); }),
            "gradient manager: a tensor is Long, wanted floating or complex values");
  EXPECT_EQ(text_of<c10::ValueError>([&] { manager.backward(at::ones({})); }),
            "gradient manager: an output requires no gradient, wanted one that depends on an attached tensor: attach "
            "before the tensor is used");
  const auto x = at::ones({}).requires_grad_();
  EXPECT_EQ(text_of<c10::ValueError>([&] {
              manager.backward({x * 2}, {x, x});
            }),
            "gradient manager: there are 2 gradients for 1 outputs, wanted one each or none");
}

/// A callback that sums over the ranks is data parallelism.
TEST(GradManager, AllReduceInACallbackEqualsOneDevice) {
  const auto images = at::randn({11, 4}, at::kDouble), first = at::randn({4, 3}, at::kDouble);
  const auto loss_of = [](const Tensor& x, const Tensor& weight) { return x.mm(weight).sin().sum() / 11; };
  auto expected = first.clone().requires_grad_();
  for (int step = 0; step < 5; ++step) {
    const auto gradient = torch::autograd::grad({loss_of(images, expected)}, {expected})[0];
    expected = (expected - 0.3 * gradient).detach().requires_grad_();
  }
  for (const int ranks : {1, 2, 3, 4}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const auto [begin, end] = comm::split_range(11, ranks, group.rank());
      const auto weight = first.clone();
      GradManager manager;
      manager.attach(weight, [&](const Tensor&, const Tensor& gradient) { return comm::all_reduce(gradient, group); });
      for (int step = 0; step < 5; ++step) {
        manager.backward(loss_of(images.slice(0, begin, end), weight));
        const at::NoGradGuard no_grad;
        weight.sub_(0.3 * weight.grad());
        weight.mutable_grad().reset();
      }
      EXPECT_TRUE(weight.allclose(expected, 1e-12)) << ranks << " ranks";
    });
  }
}

}  // namespace
}  // namespace tandem::parallel
