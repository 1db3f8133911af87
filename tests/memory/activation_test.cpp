#include "tandem/memory/activation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <functional>

#include "tandem/base/error.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/switch_activations.h"
#include "tests/support/text_of.h"

namespace tandem::memory {
namespace {

constexpr std::array kForms = {"naive", "merged", "fused"};

class ActivationTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_meter(); }
};

Tensor places(at::ScalarType type = at::kDouble) {
  return at::linspace(-6, 6, 4 * 33, at::kDouble).view({4, 33}).to(type);
}

Tensor weights() { return at::linspace(-1, 2, 4 * 33, at::kDouble).view({4, 33}); }

/// ATen's own, as the oracle.
Tensor oracle(const std::string& function, const Tensor& x) {
  if (function == "swish") return at::silu(x);
  return function == "mish" ? at::mish(x) : at::gelu(x);
}

/// Value, gradient, and gradient of the gradient.
std::vector<Tensor> derivatives(const std::function<Tensor(const Tensor&)>& apply, at::ScalarType type = at::kDouble) {
  const auto x = places(type).requires_grad_();
  const auto y = apply(x);
  const auto first = torch::autograd::grad({(y * weights().to(type)).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
  const auto second = torch::autograd::grad({first.square().sum()}, {x})[0];
  return {y.detach(), first.detach(), second};
}

/// The gradient as a plain backward computes it, without a graph of its own: the kernel's.
Tensor plain_gradient(const Activation& activation, const Tensor& values, const Tensor& weight) {
  const auto x = values.detach().clone(at::MemoryFormat::Preserve).requires_grad_();
  (activation.apply(x) * weight).sum().backward();
  return x.grad();
}

TEST_F(ActivationTest, EachFormEqualsATenTwiceDifferentiated) {
  for (const std::string function : {"swish", "mish", "gelu"}) {
    const auto expected = derivatives([&](const Tensor& x) { return oracle(function, x); });
    for (const auto* form : kForms) {
      const auto& activation = activation_of(function + "-" + form);
      const auto results = derivatives(activation.apply);
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_TRUE(at::allclose(results[i], expected[i], 1e-10, 1e-11)) << activation.name << " derivative " << i;
      }
      EXPECT_TRUE(at::allclose(plain_gradient(activation, places(), weights()), expected[1], 1e-12, 1e-13)) << form;
    }
  }
}

TEST_F(ActivationTest, TheKernelsGradientIsTheDifferenceOfItsValues) {
  constexpr double kStep = 1e-5;
  for (const std::string function : {"swish", "mish", "gelu"}) {
    const auto& activation = activation_of(function + "-fused");
    const auto difference = (activation.apply(places() + kStep) - activation.apply(places() - kStep)) / (2 * kStep);
    EXPECT_TRUE(at::allclose(plain_gradient(activation, places(), at::ones_like(places())), difference, 1e-8, 1e-9));
  }
}

/// Of kHalf ATen's own operations work out the values, whose last bits depend on the layout.
TEST_F(ActivationTest, AllTypesAndLayoutsAreTaken) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const double tolerance = type == at::kFloat ? 1e-6 : 1.6e-2, of_layouts = type == at::kHalf ? 1e-3 : 0;
    for (const std::string function : {"swish", "mish", "gelu"}) {
      const auto& activation = activation_of(function + "-fused");
      const auto x = places(type);
      const auto expected = oracle(function, x.to(at::kDouble));
      EXPECT_TRUE(at::allclose(activation.apply(x).to(at::kDouble), expected, tolerance, tolerance)) << type;
      EXPECT_TRUE(at::allclose(activation.apply(x.t()), activation.apply(x).t(), of_layouts, of_layouts));
      const auto gaps = x.slice(1, 0, 33, 2);
      EXPECT_TRUE(
          at::allclose(activation.apply(gaps).to(at::kDouble), expected.slice(1, 0, 33, 2), tolerance, tolerance));
    }
  }
  const auto empty = at::empty({0, 3}).requires_grad_();
  activation_of("swish-fused").apply(empty).sum().backward();
  EXPECT_EQ(empty.grad().sizes(), (std::vector<int64_t>{0, 3}));
}

TEST_F(ActivationTest, AGradientOfAnotherLayoutIsPutInOrder) {
  const auto& activation = activation_of("swish-fused");
  const auto x = places();
  const auto leaf = x.clone().requires_grad_();
  activation.apply(leaf).backward(weights().t().contiguous().t());  // the same numbers, columns first
  EXPECT_TRUE(at::allclose(leaf.grad(), plain_gradient(activation, x, weights()), 1e-14, 1e-15));
}

/// What activation(values * leaf) * scale keeps after forward besides its result, and allocates at most in backward, in
/// units of x. Neither product keeps what it returns.
///
///   values * leaf ──▶ x ──▶ activation ──▶ y ──▶ y * scale ──▶ sum
struct Memory {
  double kept, backward;
};

/// `watch` sees y: to hold its gradient.
Memory memory_of(const Activation& activation, const std::function<void(const Tensor& y)>& watch = nullptr) {
  constexpr int64_t kNumbers = 1024 * 64;
  const auto values = at::linspace(-3, 3, kNumbers).view({1024, 64});
  const auto scale = at::ones({1024, 1}), leaf = at::ones({}).requires_grad_();
  ProbeScope probe;
  const auto units = [](int64_t bytes) {
    return std::round(100.0 * static_cast<double>(bytes) / (4 * kNumbers)) / 100;
  };
  Tensor sum;
  {
    const auto y = activation.apply(values * leaf);
    if (watch) watch(y);
    sum = (y * scale).sum();
  }
  const auto kept = probe.account().live_bytes();
  probe.reset_peak();
  sum.backward();
  return {units(kept), units(probe.account().peak_bytes() - kept)};
}

bool operator==(const Memory& a, const Memory& b) { return a.kept == b.kept && a.backward == b.backward; }
void PrintTo(const Memory& memory, std::ostream* to) { *to << memory.kept << " kept, " << memory.backward; }

TEST_F(ActivationTest, WhatIsKeptAndWhatBackwardAllocates) {
  // The product's backward allocates one gradient; x goes when its backward has run; the first product's backward
  // allocates one, too.
  for (const std::string function : {"swish", "mish", "gelu"}) {
    EXPECT_EQ(memory_of(activation_of(function + "-fused")), (Memory{1, 1})) << function;
    EXPECT_EQ(memory_of(activation_of(function + "-merged")).kept, 1) << function;
  }
  EXPECT_EQ(memory_of(activation_of("swish-naive")).kept, 2);
  EXPECT_EQ(memory_of(activation_of("mish-naive")).kept, 2);
  EXPECT_EQ(memory_of(activation_of("gelu-naive")).kept, 3);
  EXPECT_EQ(memory_of({"silu", [](const Tensor& x) { return at::silu(x); }, nullptr}), (Memory{1, 2}));
}

TEST_F(ActivationTest, AGradientThatSomebodyHoldsIsNotOverwritten) {
  const auto& fused = activation_of("swish-fused");
  std::vector<Tensor> held;
  const auto keep = [&](const Tensor& gradient) { held.push_back(gradient); };

  EXPECT_EQ(memory_of(fused, [&](const Tensor& y) { y.register_hook(keep); }).backward, 2);
  EXPECT_TRUE(held.at(0).equal(at::ones({1024, 64})));
  Tensor y_kept;
  EXPECT_EQ(memory_of(fused, [&](const Tensor& y) { (y_kept = y).retain_grad(); }).backward, 2);
  EXPECT_TRUE(y_kept.grad().equal(at::ones({1024, 64})));
}

TEST_F(ActivationTest, AGradientWithTwoReadersIsRightForBoth) {
  const auto& fused = activation_of("swish-fused");
  const auto a = places().requires_grad_(), b = (places() * 0.5).requires_grad_();
  const auto x = a * 1, z = b * 1;  // no leaves, so that gradients could be stolen on the way
  ((fused.apply(x) + fused.apply(z)) * weights()).sum().backward();
  EXPECT_TRUE(a.grad().equal(plain_gradient(fused, places(), weights())));
  EXPECT_TRUE(b.grad().equal(plain_gradient(fused, places() * 0.5, weights())));
}

TEST_F(ActivationTest, ACapturedGradientIsNotOverwritten) {
  const auto& fused = activation_of("swish-fused");
  const auto x = places().requires_grad_();
  const auto y = fused.apply(x * 1);
  const auto gradients = torch::autograd::grad({(y * weights()).sum()}, {y, x});
  EXPECT_TRUE(gradients[0].equal(weights()));
  EXPECT_TRUE(gradients[1].equal(plain_gradient(fused, places(), weights())));
}

TEST_F(ActivationTest, TheCallersOwnGradientIsNotOverwritten) {
  const auto x = places().requires_grad_();
  const auto seed = weights();
  const auto y = activation_of("gelu-fused").apply(x);
  y.backward(seed, /*retain_graph=*/true);
  y.backward(seed);
  EXPECT_TRUE(seed.equal(weights()));
  EXPECT_TRUE(at::allclose(x.grad(), 2 * plain_gradient(activation_of("gelu-fused"), places(), weights())));
}

TEST_F(ActivationTest, AnInputChangedInPlaceIsCaught) {
  const auto x = places().requires_grad_();
  const auto input = x * 1;
  const auto y = activation_of("swish-fused").apply(input);
  input.add_(1);
  const auto text = test::text_of<c10::Error>([&] { y.sum().backward(); });
  EXPECT_NE(text.find("modified by an inplace operation"), std::string::npos) << text;
}

TEST_F(ActivationTest, AnUnknownNameIsRefused) {
  EXPECT_EQ(test::text_of<SettingsError>([] { activation_of("swish-fusd"); }),
            "activation is 'swish-fusd', wanted relu, leaky-relu, elu, silu, swish-naive, swish-merged, swish-fused, "
            "mish-naive, mish-merged, mish-fused, gelu-naive, gelu-merged or gelu-fused: did you mean swish-fused?");
}

/// A container that can be inside another one.
struct Inner : torch::nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  Tensor forward(const Tensor& x) { return SequentialImpl::forward(x); }
};

TEST_F(ActivationTest, TheActivationsOfASequentialAreSwitchedAlsoInside) {
  const auto inner = std::make_shared<Inner>(torch::nn::Linear(4, 4), torch::nn::SiLU());
  torch::nn::Sequential model;
  model->push_back("first", torch::nn::Linear(3, 4));
  model->push_back("act", torch::nn::ReLU(torch::nn::ReLUOptions(true)));
  model->push_back("inner", inner);
  const auto names = model->named_parameters().keys();
  const auto x = at::linspace(-2, 2, 15).view({5, 3});
  const auto expected = [&](Tensor (*f)(const Tensor&)) {
    const auto hidden = f(model[0]->as<torch::nn::Linear>()->forward(x));
    return f(inner->ptr(0)->as<torch::nn::Linear>()->forward(hidden));
  };
  EXPECT_EQ(switch_activations(*model, activation_of("mish-naive")), 2);
  EXPECT_TRUE(model->forward(x).equal(expected(activation_of("mish-naive").apply)));
  EXPECT_EQ(switch_activations(*model, activation_of("swish-fused")), 2) << "a switched model can be switched again";
  EXPECT_TRUE(model->forward(x).equal(expected(activation_of("swish-fused").apply)));
  EXPECT_EQ(model->named_parameters().keys(), names);
  EXPECT_TRUE(model->named_children().contains("act"));
}

}  // namespace
}  // namespace tandem::memory
