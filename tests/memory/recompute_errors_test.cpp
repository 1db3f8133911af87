#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>

#include "tandem/base/context.h"
#include "tandem/memory/recompute.h"
#include "tests/memory/recompute_model.h"
#include "tests/support/python.h"
#include "tests/support/text_of.h"

namespace tandem::memory {
namespace {

using torch::autograd::grad;

Tensor four() { return at::arange(1, 5, at::kDouble).requires_grad_(); }

std::string error_of(const Tensor& y) {
  return test::text_of<c10::Error>([&] { y.sum().backward(); });
}

/// torch.utils.checkpoint gives no error in this case, and another gradient than the true one.
void expect_silent_in_python(const std::string& name) {
  static const auto answer = test::ask_python("checkpoint_errors.py", {});
  if (answer.missing) GTEST_SKIP() << answer.text;
  const auto wanted = answer.tensors.at(name + ".wanted"), got = answer.tensors.at(name + ".checkpoint");
  EXPECT_EQ(got.sizes(), wanted.sizes());
  EXPECT_FALSE(at::allclose(wanted, got)) << name;
}

TEST(RecomputeErrors, WritingToASavedTensorInside) {
  expect_silent_in_python("in_place");
  const auto forward = [](const Tensor& x) {
    auto y = x.exp();
    y.mul_(3);
    return y.sin();
  };
  for (const bool stop_early : {true, false}) {
    EXPECT_EQ(error_of(recompute(forward, four(), {.name = "layer1", .stop_early = stop_early})),
              "recompute[layer1]: saved tensor 1 of 2 (Double [4] of ExpBackward0) is at version 1, wanted 0: it was "
              "changed in place after forward saved it; use an operation that is not in place");
  }
}

TEST(RecomputeErrors, WritingToASavedTensorOnlyWhenForwardRunsAgain) {
  int calls = 0;
  const auto forward = [&](const Tensor& x) {
    const auto y = x.exp();
    if (++calls > 1) y.detach().mul_(3);
    return y + 1;
  };
  EXPECT_EQ(
      error_of(recompute(forward, four(), {.name = "layer1", .stop_early = false})),
      "recompute[layer1]: saved tensor 1 of 1 (Double [4]) is at version 1 in backward, wanted 0: forward changes "
      "it in place when it runs again; it must do the same each time");
}

TEST(RecomputeErrors, WritingToASavedTensorBeforeABackwardInside) {
  int calls = 0;
  const auto forward = [&](const Tensor& x) {
    const auto y = x.exp();
    if (++calls > 1) y.detach().mul_(3);
    return grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0].sin();
  };
  EXPECT_EQ(error_of(recompute(forward, four())),
            "recompute: a saved tensor (Double [4]) is at version 1, wanted 0: it was changed in place after forward "
            "saved it; use an operation that is not in place");
}

TEST(RecomputeErrors, AWeightChangedBeforeBackward) {
  expect_silent_in_python("weight");
  const auto weight = four().detach().clone().requires_grad_();
  const auto y = recompute([&](const Tensor& x) { return (x * weight).sin(); }, four(), {.name = "layer1"});
  {
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  }
  EXPECT_EQ(error_of(y),
            "recompute[layer1]: weight (Double [4]) is at version 1, wanted 0: it was changed since forward; change "
            "weights after backward");
}

TEST(RecomputeErrors, ABiasThatNobodySavesChangedBeforeBackward) {
  torch::nn::Linear linear(4, 4);
  linear->to(at::kDouble);
  for (const bool is_frozen : {false, true}) {
    linear->bias.set_requires_grad(!is_frozen);
    const auto y = recompute([=](const Tensor& x) { return at::linear(x, linear->weight, linear->bias).sin(); }, four(),
                             {.name = "layer1", .modules = {linear.ptr()}});
    {
      const at::NoGradGuard no_grad;
      linear->bias.add_(1);
    }
    EXPECT_EQ(error_of(y), "recompute[layer1]: weight bias (Double [4]) is at version " +
                               std::to_string(linear->bias._version()) + ", wanted " +
                               std::to_string(linear->bias._version() - 1) +
                               ": it was changed since forward; change weights after backward");
  }
}

TEST(RecomputeErrors, AWeightThatForwardChanges) {
  const auto weight = four().detach().clone().requires_grad_();
  const auto forward = [&](const Tensor& x) {
    {
      const at::NoGradGuard no_grad;
      weight.mul_(2);
    }
    return (x * weight).sin();
  };
  EXPECT_EQ(error_of(recompute(forward, four(), {.values = ValueCheck::none})),
            "recompute: weight (Double [4]) is at version 2, wanted 1: it was changed since forward; change weights "
            "after backward");
}

TEST(RecomputeErrors, OtherValues) {
  expect_silent_in_python("values");
  for (const auto check : {ValueCheck::sample, ValueCheck::all}) {
    double factor = 1;
    const auto y =
        recompute([&](const Tensor& x) { return (x * ++factor).sin(); }, four(), {.name = "layer1", .values = check});
    EXPECT_EQ(error_of(y),
              "recompute[layer1]: saved tensor 1 of 1 (Double [4] of MulBackward1) has other values when forward runs "
              "again, wanted the same bits: forward must compute from its inputs, constant tensors and generators that "
              "the options name");
  }
}

TEST(RecomputeErrors, OneOtherElementOfMany) {
  int64_t calls = 0;
  const auto forward = [&](const Tensor& x) {
    auto y = x * 2;
    const at::NoGradGuard no_grad;
    y.detach().select(0, 5).select(0, 7).fill_(++calls);
    const at::AutoGradMode with(true);
    return y.sin();
  };
  const auto x = at::ones({10, 100}, at::kDouble).requires_grad_();
  const auto text = error_of(recompute(forward, x, {.values = ValueCheck::all}));
  EXPECT_NE(text.find("(Double [10, 100] of MulBackward1) has other values"), std::string::npos) << text;
  const auto transposed = error_of(recompute(forward, x.t().contiguous().t(), {.values = ValueCheck::all}));
  EXPECT_NE(transposed.find("has other values"), std::string::npos) << transposed;
}

TEST(RecomputeErrors, AnInputChangedInPlace) {
  const auto x = four();
  const auto input = x * 1;
  const auto y = recompute([](const Tensor& in) { return in.sin().exp(); }, input, {.name = "layer1"});
  input.detach().add_(1);
  const std::string text =
      "recompute[layer1]: input 0 (Double [4] of MulBackward1) is at version 1, wanted 0: it was changed in place "
      "since "
      "forward began; change a clone of it";
  EXPECT_EQ(error_of(y), text);
  EXPECT_EQ(test::text_of<c10::Error>(
                [&] { recompute([](const Tensor& in) { return in.relu_().exp(); }, x * 1, {.name = "layer1"}); }),
            text);
}

TEST(RecomputeErrors, OtherShapes) {
  bool is_again = false;
  const auto forward = [&](const Tensor& x) {
    const auto y = std::exchange(is_again, true) ? x.slice(0, 0, 2) : x;
    return y.sin().exp();
  };
  EXPECT_EQ(error_of(recompute(forward, four(), {.name = "layer1"})),
            "recompute[layer1]: saved tensor 1 of 2 is Double [2] when forward runs again, wanted Double [4]: forward "
            "must do the same each time");
}

TEST(RecomputeErrors, MoreOrFewerTensors) {
  for (const int64_t second : {1, 3}) {
    int64_t count = 2;
    const auto forward = [&](const Tensor& x) {
      auto y = x;
      for (int64_t i = std::exchange(count, second); i-- > 0;) y = y.exp();
      return y;
    };
    const auto text = error_of(
        recompute(forward, at::zeros({1}, at::kDouble).requires_grad_(), {.name = "layer1", .stop_early = false}));
    EXPECT_EQ(text, "recompute[layer1]: forward saves " + std::to_string(second) +
                        " tensors when it runs again, wanted 2: forward must do the same each time");
  }
}

TEST(RecomputeErrors, TheSharedGeneratorOnAThreadRank) {
  const auto noisy = [](const Tensor& x) { return x * at::empty_like(x).bernoulli_(0.5); };
  const RankScope rank(1);
  EXPECT_EQ(
      error_of(recompute(noisy, four(), {.name = "layer1"})),
      "recompute[layer1]: aten::bernoulli_ draws from the process's default generator, wanted one of rank 1: pass "
      "a generator, and name it in RecomputeOptions::generators");
  const auto generator = at::detail::createCPUGenerator(1);
  const auto own = [&](const Tensor& x) { return x * at::empty_like(x).bernoulli_(0.5, generator); };
  EXPECT_EQ(error_of(recompute(
                         [&](const Tensor& x) {
                           at::rand({1});  // another rank's
                           return own(x);
                         },
                         four(), {.generators = {generator}}))
                .find("aten::rand draws from"),
            std::string("recompute: ").size());
  EXPECT_EQ(error_of(recompute(own, four(), {.generators = {generator}})), "nothing thrown");
  EXPECT_NE(error_of(recompute(own, four())).find("has other values"), std::string::npos);
}

TEST(RecomputeErrors, AKeptResultThatIsWrittenTo) {
  const auto forward = [](const Tensor& x) { return x.mul(2).relu_().exp(); };
  const auto keep = [](std::string_view operation) { return operation == "aten::mul"; };
  EXPECT_EQ(error_of(recompute(forward, four(), {.name = "layer1", .keep = keep})),
            "recompute[layer1]: the kept result of aten::mul (Double [4]) is at version 1, wanted 0: it was changed in "
            "place; do not keep it, or use an operation that is not in place");
}

TEST(RecomputeErrors, OtherOperationsThanThoseKept) {
  bool is_again = false;
  const auto forward = [&](const Tensor& x) { return std::exchange(is_again, true) ? x.sin().exp() : x.exp().exp(); };
  const auto keep = [](std::string_view) { return true; };
  const auto text = error_of(recompute(forward, four(), {.values = ValueCheck::none, .keep = keep}));
  EXPECT_EQ(text,
            "recompute: operation 1 is aten::sin when forward runs again, wanted aten::exp: forward must do the "
            "same each time");
}

}  // namespace
}  // namespace tandem::memory
