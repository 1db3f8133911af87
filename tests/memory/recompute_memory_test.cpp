#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tandem/base/context.h"
#include "tandem/memory/meter.h"
#include "tests/memory/recompute_model.h"

namespace tandem::memory {
namespace {

constexpr int64_t kRows = 64, kWidth = 32, kValue = kRows * kWidth * 8;  // bytes of a value between two cells

class RecomputeMemory : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_meter(); }

  RecomputeMemory() {
    for (int i = 0; i < 8; ++i) cells.push_back(std::make_shared<Cell>(kWidth));
    input = at::ones({kRows, kWidth}, at::kDouble);
    loss(run_cells(cells, input)).backward();  // gradients are there from now on
  }

  static Tensor loss(const Tensor& y) { return y.square().mean(); }

  /// Each cell a region of its own, or every `width` cells one.
  Tensor run(const RecomputeOptions& options, size_t width = 1) const {
    auto y = input;
    for (size_t i = 0; i < cells.size(); i += width) {
      y = recompute_cells({cells.begin() + i, cells.begin() + i + width}, y, options);
    }
    return y;
  }

  Cells cells;
  Tensor input;
};

int64_t live(const ProbeScope& probe) { return probe.account().live_bytes(); }
int64_t peak(const ProbeScope& probe) { return probe.account().peak_bytes(); }

TEST_F(RecomputeMemory, ForwardKeepsNothingButTheInputsOfRegions) {
  for (const size_t width : {1, 2, 4, 8}) {
    for (const bool stop_early : {true, false}) {
      const ProbeScope probe;
      const auto y = run({.stop_early = stop_early}, width);
      EXPECT_EQ(live(probe), static_cast<int64_t>(8 / width) * kValue) << width;
    }
  }
}

TEST_F(RecomputeMemory, ThePeakIsLowerAndNothingIsLeft) {
  const auto measured = [&](const auto& run_all) {
    const ProbeScope probe;
    {
      const auto y = run_all();
      loss(y).backward();
    }
    EXPECT_EQ(live(probe), 0);
    return peak(probe);
  };
  const auto plain = measured([&] { return run_cells(cells, input); });
  EXPECT_LT(2 * measured([&] { return run({}); }), plain);
}

TEST_F(RecomputeMemory, ARegionInsideARegionLowersThePeakOfBackward) {
  const auto peak_of = [&](const std::function<Tensor(const Tensor&)>& forward) {
    const ProbeScope probe;
    auto y = recompute(forward, input, {.modules = {cells.begin(), cells.end()}, .restore_buffers = true});
    EXPECT_EQ(live(probe), kValue);  // whatever is inside
    loss(y).backward();
    return peak(probe);
  };
  const auto whole = peak_of([&](const Tensor& x) { return run_cells(cells, x); });
  const auto parts = peak_of([&](const Tensor& x) {
    auto y = x;
    for (const auto& cell : cells) y = recompute_cells({cell}, y);
    return y;
  });
  EXPECT_LT(2 * parts, whole);
}

TEST_F(RecomputeMemory, ARegionThatNeverSeesBackwardLeavesNothing) {
  const ProbeScope probe;
  {
    const auto y = run({}, 4);
    EXPECT_EQ(live(probe), 2 * kValue);
  }
  EXPECT_EQ(live(probe), 0);
}

TEST_F(RecomputeMemory, AnInputThatForwardWritesToIsNotHeldByItself) {
  const auto x = at::ones({kRows, kWidth}, at::kDouble).requires_grad_();
  const ProbeScope probe;
  EXPECT_THROW(recompute([](const Tensor& in) { return in.relu_(); }, x * 1), c10::Error);
  EXPECT_EQ(live(probe), 0);
}

TEST_F(RecomputeMemory, ARetainedGraphHoldsNothingMoreAfterBackward) {
  const ProbeScope probe;
  const auto y = loss(run({}, 4));
  const auto before = live(probe);
  for (int i = 0; i < 3; ++i) {
    y.backward({}, /*retain_graph=*/true);
    EXPECT_EQ(live(probe), before) << i;
  }
}

TEST_F(RecomputeMemory, TensorsThatNoNodeAskedForGoWithTheBackward) {
  const auto x = at::ones({kRows, kWidth}, at::kDouble).requires_grad_();
  const ProbeScope probe;
  const auto y = loss(recompute_cells(cells, x));
  const auto before = live(probe);
  for (int i = 0; i < 3; ++i) {  // the gradients of weights, which need the inputs of linear layers, are left out
    torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true);
    EXPECT_EQ(live(probe), before) << i;
  }
}

TEST_F(RecomputeMemory, AnExceptionLeavesNothing) {
  const ProbeScope probe;
  {
    bool is_first = true;
    const auto x = at::ones({kRows, kWidth}, at::kDouble).requires_grad_();
    const auto y = recompute(
        [&](const Tensor& in) {
          auto out = in.sin();
          out = out.exp();
          if (!std::exchange(is_first, false)) throw std::runtime_error("no");
          return out * in;
        },
        x, {.stop_early = false});
    const auto before = live(probe);
    EXPECT_THROW(y.sum().backward(), std::runtime_error);
    EXPECT_EQ(live(probe), before);
  }
  EXPECT_EQ(live(probe), 0);
}

/// Bytes allocated (positive) and freed (negative), in their order.
std::vector<int64_t> changes_of(const ProbeScope& probe, const std::function<void()>& work) {
  EventLog log(probe.number());
  work();
  std::vector<int64_t> changes;
  for (const auto& event : log.end()) {
    changes.push_back(event.what == Event::What::allocate ? event.bytes : -event.bytes);
  }
  return changes;
}

TEST_F(RecomputeMemory, AfterForwardHasRunAgainBackwardFreesAsPlainAutogradDoes) {
  const auto x = at::ones({kRows, kWidth}, at::kDouble).requires_grad_();
  const auto gradient = at::ones({kRows, kWidth}, at::kDouble);
  const auto backward = [&](bool is_plain) {
    const ProbeScope probe;
    x.mutable_grad().reset();
    auto start = x * 2;
    auto y = is_plain ? run_cells(cells, start) : recompute_cells(cells, start);
    start.reset();
    return changes_of(probe, [&] { y.backward(gradient); });
  };
  const auto plain = backward(true), again = backward(false);
  ASSERT_LT(plain.size(), again.size());
  EXPECT_TRUE(std::equal(plain.rbegin(), plain.rend(), again.rbegin()));
}

TEST_F(RecomputeMemory, ForwardThatRunsToItsEndAllocatesAsTheFirstTime) {
  const auto weight = at::ones({kWidth, kWidth}, at::kDouble).requires_grad_();
  const auto forward = [&](const Tensor& in) { return (in.sin().mm(weight) + 1).exp().mm(weight).sin().mm(weight); };
  const auto x = input.clone().requires_grad_();
  const auto gradient = at::ones_like(x);
  const auto grad_of = [&](const Tensor& y) { torch::autograd::grad({y}, {x}, {gradient}); };
  std::vector<int64_t> wanted, got;
  {
    const ProbeScope probe;
    Tensor y;
    wanted = changes_of(probe, [&] { y = forward(x); });
    wanted.push_back(-kValue);  // the result of the last product, which backward does not need
    const auto backward = changes_of(probe, [&] { grad_of(y); });
    wanted.insert(wanted.end(), backward.begin(), backward.end());
  }
  {
    const ProbeScope probe;
    const auto y = recompute(forward, x, {.stop_early = false});
    got = changes_of(probe, [&] { grad_of(y); });
  }
  EXPECT_EQ(got, wanted);
}

TEST_F(RecomputeMemory, APeakIsThatOfTheInputsAndOneCell) {
  const auto peak_of = [&](size_t count) {
    const Cells some(cells.begin(), cells.begin() + count);
    const auto x = at::ones({kRows, kWidth}, at::kDouble).requires_grad_();
    const ProbeScope probe;
    auto y = x;
    for (const auto& cell : some) y = recompute_cells({cell}, y);
    loss(y).backward();
    return peak(probe);
  };
  const auto two = peak_of(2);
  for (const size_t count : {3, 5, 8}) EXPECT_EQ(peak_of(count), two + static_cast<int64_t>(count - 2) * kValue);
}

TEST_F(RecomputeMemory, WhatForwardComputesAgainBelongsToItsBlock) {
  const ProbeScope probe;
  const int number = block_number("recomputed");
  Tensor y;
  {
    const BlockScope block(number);
    const CategoryScope category(Category::activations);
    y = recompute([](const Tensor& in) { return in.sin().exp().sin(); }, input.clone().requires_grad_());
  }
  EventLog log(probe.number());
  y.sum().backward();
  int64_t bytes = 0;
  for (const auto& event : log.end()) {
    if (event.what != Event::What::allocate || event.block != number) continue;
    EXPECT_EQ(event.category, Category::activations);
    bytes += event.bytes;
  }
  EXPECT_EQ(bytes, 2 * kValue);  // sin, exp
}

TEST_F(RecomputeMemory, KeptResultsAreNotComputedAgain) {
  std::vector<std::string> asked;
  const RecomputeOptions options = {.values = ValueCheck::all, .keep = [&](std::string_view operation) {
                                      asked.emplace_back(operation);
                                      return operation == "aten::mm";
                                    }};
  const auto weight = at::ones({kWidth, kWidth}, at::kDouble).requires_grad_();
  const auto forward = [&](const Tensor& x) { return x.sin().mm(weight).exp().mm(weight).sigmoid(); };
  const auto x = input.clone().requires_grad_();
  const auto values_in_backward_of = [&](const auto& run) {  // how many it allocates
    const ProbeScope probe;
    const auto y = run();
    return std::ranges::count(changes_of(probe, [&] { torch::autograd::grad({y.sum()}, {x, weight}); }), kValue);
  };
  const auto plain_values = values_in_backward_of([&] { return forward(x); });
  EXPECT_EQ(values_in_backward_of([&] { return recompute(forward, x); }), plain_values + 5);
  EXPECT_EQ(values_in_backward_of([&] { return recompute(forward, x, options); }), plain_values + 3);
  asked.clear();
  const auto plain = torch::autograd::grad({forward(x).sum()}, {x, weight});
  const ProbeScope probe;
  const auto y = recompute(forward, x, options).sum();
  EXPECT_EQ(live(probe), 2 * kValue + 8);  // two products, the sum
  EXPECT_EQ(asked, (std::vector<std::string>{"aten::sin", "aten::mm", "aten::exp", "aten::mm", "aten::sigmoid"}));
  EXPECT_TRUE(are_equal(torch::autograd::grad({y}, {x, weight}), plain));
  EXPECT_EQ(asked.size(), 5u);
  EXPECT_EQ(live(probe), 8);
}

}  // namespace
}  // namespace tandem::memory
