#include "tandem/memory/keep_ways.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>

#include "tandem/memory/batch_norm.h"
#include "tandem/memory/inplace_abn.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/planned_chain.h"
#include "tandem/memory/recompute.h"
#include "tandem/memory/recompute_plan.h"
#include "tandem/memory/rehearsal.h"
#include "tests/support/text_of.h"

namespace tandem::memory {
namespace {

constexpr int64_t kRows = 64, kWidth = 48, kNumbers = kRows * kWidth, kBytes = kNumbers * 4;

const KeepWay& bf16() { return keep_way("bf16"); }
const KeepWay& int8() { return keep_way("int8"); }
std::vector<const KeepWay*> lossy() { return {&bf16(), &int8()}; }

int64_t packed_bytes(const KeepWay& way) { return &way == &bf16() ? kNumbers * 2 : kNumbers + kNumbers / 256 * 4; }

class KeepAs : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_meter(); }
  void SetUp() override { at::manual_seed(7); }

  const Tensor input = at::randn({kRows, kWidth});
};

int64_t live(const ProbeScope& probe) { return probe.account().live_bytes(); }

/// What the way makes of the numbers.
Tensor restored(const KeepWay& way, const Tensor& numbers) {
  const auto flat = numbers.reshape({-1});
  return way.unpack(way.pack(flat), flat.numel(), flat.options()).reshape(numbers.sizes());
}

TEST_F(KeepAs, NumbersAreWithinTheStatedError) {
  for (const double size : {1e-20, 1.0, 1e20}) {
    const auto x = input * size;
    EXPECT_TRUE(at::le((restored(bf16(), x) - x).abs(), x.abs() / 256).all().item<bool>()) << size;
    const auto most = x.reshape({-1, 256}).abs().amax(1, true) / 252 * 1.0001;
    EXPECT_TRUE(at::le((restored(int8(), x) - x).abs().reshape({-1, 256}), most).all().item<bool>()) << size;
    for (const auto* way : lossy()) {
      EXPECT_FALSE(restored(*way, x).equal(x));
      EXPECT_TRUE(restored(*way, x).sign().equal(x.sign()));
      EXPECT_TRUE(restored(*way, x).equal(restored(*way, x)));
    }
  }
}

/// The gradient of a product's weight is a sum over the kept input.
TEST_F(KeepAs, AWeightsGradientIsWithinTheErrorOfTheInput) {
  const auto weight = at::randn({kWidth, 32}).requires_grad_(), slope = at::randn({kRows, 32});
  const auto gradient = [&](const std::function<Tensor(const Tensor&)>& forward) {
    return torch::autograd::grad({forward(input)}, {weight}, {slope})[0];
  };
  const auto product = [&](const Tensor& x) { return x.mm(weight); };
  const auto exact = gradient(product);
  for (const auto* way : lossy()) {
    const auto own = gradient([&](const Tensor& x) { return keep_as(*way, product, x); });
    const auto bound = (restored(*way, input) - input).abs().t().mm(slope.abs()) + 1e-4;
    EXPECT_TRUE(at::le((own - exact).abs(), bound).all().item<bool>()) << way->name;
    EXPECT_FALSE(own.equal(exact)) << way->name;
    EXPECT_TRUE(own.allclose(restored(*way, input).t().mm(slope), 1e-5, 1e-4)) << way->name;
  }
}

TEST_F(KeepAs, TheResultHasTheSameBitsAndARectifierTheSameGradient) {
  const auto x = input.clone().requires_grad_();
  const auto plain = x.relu();
  const auto exact = torch::autograd::grad({plain.sum()}, {x})[0];
  for (const auto* way : lossy()) {
    const auto y = keep_as(
        *way, [](const Tensor& v) { return v.relu(); }, x);
    EXPECT_TRUE(y.equal(plain));
    EXPECT_TRUE(torch::autograd::grad({y.sum()}, {x})[0].equal(exact)) << way->name;
  }
}

TEST_F(KeepAs, KeepsTheBytesThatTheTableTells) {
  const auto x = input.clone().requires_grad_();
  for (const auto* way : lossy()) {
    const ProbeScope probe;
    {
      auto y = keep_as(
          *way, [](const Tensor& v) { return v.sigmoid().exp(); }, x);
      EXPECT_EQ(live(probe), kBytes + 2 * packed_bytes(*way)) << way->name;  // y, and each of the two results
      y.sum().backward();
    }
    EXPECT_EQ(live(probe), kBytes) << "the gradient";
    x.mutable_grad().reset();
  }
}

TEST_F(KeepAs, WhatIsSavedTwiceIsPackedOnceAndUnpackedOnce) {
  const auto x = input.clone().requires_grad_();
  const auto twice = [](const Tensor& v) {
    const auto y = v.exp();
    return y.reshape({-1}).reshape(y.sizes()) * y;  // exp keeps y, and the product keeps it twice
  };
  const ProbeScope probe;
  auto z = keep_as(bf16(), twice, x);
  EXPECT_EQ(live(probe), kBytes + packed_bytes(bf16()));
  torch::autograd::grad({z.sum()}, {x});
}

TEST_F(KeepAs, ALaterVersionIsAnotherTensor) {
  const auto x = input.clone().requires_grad_();
  const auto forward = [](const Tensor& v) {
    auto y = v * 1.0;
    const auto a = y.detach() * v;  // saves both; y is at version 0
    auto other = y.detach().clone();
    const auto b = other * v;
    return a + b;
  };
  const auto y = keep_as(bf16(), forward, x);
  const auto exact = torch::autograd::grad({forward(x).sum()}, {x})[0];
  EXPECT_TRUE(torch::autograd::grad({y.sum()}, {x})[0].allclose(exact, 1.0 / 128));
}

TEST_F(KeepAs, ManyTensorsAtTheSameAddressesAreNotTakenForOneAnother) {
  const auto x = input.clone().requires_grad_();
  const auto forward = [](const Tensor& v) {
    auto y = v;
    for (int i = 0; i < 20; ++i) y = (y * 0.5).sigmoid();  // each result is freed as soon as it is packed
    return y;
  };
  const auto exact = torch::autograd::grad({forward(x).sum()}, {x})[0];
  const auto own = torch::autograd::grad({keep_as(bf16(), forward, x).sum()}, {x})[0];
  EXPECT_TRUE(own.allclose(exact, 20.0 / 128, 0));
}

TEST_F(KeepAs, WeightsStatisticsAndSmallTensorsStay) {
  torch::nn::Linear linear(kWidth, kWidth);
  const auto frozen = at::randn({kWidth, kWidth});
  linear->register_buffer("frozen", frozen);
  const auto row = at::randn({4096}), small = at::randn({8, 8}), indices = at::zeros({kRows, kWidth}, at::kLong);
  const auto expect_nothing_packed = [&](const std::function<Tensor(const Tensor&)>& forward, const Tensor& x) {
    const ProbeScope probe;
    const auto y = keep_as(int8(), forward, x, {.modules = {linear.ptr()}});
    EXPECT_EQ(live(probe), static_cast<int64_t>(y.storage().nbytes()));
  };
  const auto few = at::randn({2, kWidth}).requires_grad_();
  expect_nothing_packed([&](const Tensor& v) { return at::linear(v, linear->weight); }, few);
  expect_nothing_packed([&](const Tensor& v) { return v.mm(linear->weight.t()); }, few);
  expect_nothing_packed([&](const Tensor& v) { return v.mm(frozen); }, few);
  expect_nothing_packed([&](const Tensor& v) { return v * row; }, at::randn({4096}).requires_grad_());
  expect_nothing_packed([&](const Tensor& v) { return v * small; }, at::randn({8, 8}).requires_grad_());
  expect_nothing_packed([&](const Tensor& v) { return v.gather(0, indices); }, few);
}

TEST_F(KeepAs, AChangeInPlaceIsAnErrorAsInPlainAutograd) {
  const auto x = input.clone().requires_grad_();
  for (const auto* way : lossy()) {
    auto y = keep_as(*way, [](const Tensor& v) { return v.exp(); }, x, {.name = "layer"});
    y.add_(1);
    const auto text = test::text_of<c10::Error>([&] { y.sum().backward(); });
    EXPECT_TRUE(
        text.starts_with("keep_as[layer]: saved tensor (Float [64, 48] of ExpBackward0) is at version 1, "
                         "wanted 0: it was changed in place after forward saved it; use an operation that is "
                         "not in place"))
        << text;
  }
}

TEST_F(KeepAs, BackwardRunsTwiceAndTwiceOver) {
  const auto x = input.clone().requires_grad_();
  const auto cube = [](const Tensor& v) { return v * v * v; };
  for (const auto* way : lossy()) {
    const auto y = keep_as(*way, cube, x).sum();
    const auto once = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true)[0];
    const auto again = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    EXPECT_TRUE(once.equal(again));
    const auto second = torch::autograd::grad({again.sum()}, {x})[0];
    const double error = way == &bf16() ? 6.0 / 128 : 6.0 * 4 / 252;
    EXPECT_TRUE(second.allclose(6 * x.detach(), 2.0 / 128, error)) << way->name;
  }
}

TEST_F(KeepAs, InsideAndAroundARecomputation) {
  const auto x = input.clone().requires_grad_();
  const auto layers = [](const Tensor& v) { return (v.sigmoid() * v).exp(); };
  const auto gradient = [&](const Tensor& y) { return torch::autograd::grad({y.sum()}, {x})[0]; };
  for (const auto* way : lossy()) {
    const auto kept = [&](const Tensor& v) { return keep_as(*way, layers, v); };
    const auto alone = gradient(kept(x));
    const ProbeScope probe;
    auto inside = recompute([&](const Tensor& v) { return kept(v * 1.0); }, x, {.values = ValueCheck::all});
    EXPECT_EQ(live(probe), kBytes) << "only the result: what is packed is computed again";
    EXPECT_TRUE(gradient(inside).equal(alone)) << way->name;
    const auto again = [&](const Tensor& v) { return recompute(layers, v * 1.0, {.values = ValueCheck::all}); };
    EXPECT_TRUE(gradient(keep_as(*way, again, x)).equal(gradient(layers(x)))) << "its input stays as it is";
    const auto both = [&](const Tensor& v) { return keep_as(int8(), kept, v); };
    EXPECT_TRUE(gradient(both(x)).equal(alone)) << "packed once, by the inner one";
  }
}

/// at::batch_norm() saves them before the batch moves them, and finds them moved when forward runs again.
TEST_F(KeepAs, RunningStatisticsInsideARecomputationMoveOnce) {
  const auto x = input.clone().requires_grad_();
  const auto weight = at::ones({kWidth}).requires_grad_(), bias = at::zeros({kWidth}).requires_grad_();
  for (const auto* way : lossy()) {
    const BatchNormState state{weight, bias, at::zeros({kWidth}), at::ones({kWidth})};
    const auto kept = [&](const Tensor& v) {
      return keep_as(
          *way, [&](const Tensor& u) { return batch_norm(u, state, /*training=*/true); }, v * 1.0);
    };
    const auto y = recompute(kept, x, {.values = ValueCheck::all});
    const auto moved = state.running_var.clone();
    y.sum().backward();
    EXPECT_FALSE(moved.equal(at::ones({kWidth}))) << way->name;
    EXPECT_TRUE(state.running_var.equal(moved)) << way->name;
  }
}

TEST_F(KeepAs, WhatBackwardInvertsStays) {
  const auto x = input.clone().requires_grad_();
  const auto weight = at::full({kWidth}, 1e-3F).requires_grad_(), bias = at::zeros({kWidth}).requires_grad_();
  const auto norm = [&](const Tensor& v) {
    return inplace_abn(v * 1.0, kernels::Invertible::swish, {weight, bias, at::zeros({kWidth}), at::ones({kWidth})},
                       /*training=*/true);
  };
  const auto slope = at::randn({kRows, kWidth});
  const auto gradients = [&](const Tensor& y) { return torch::autograd::grad({y}, {x, weight, bias}, {slope}); };
  const auto exact = gradients(norm(x)), own = gradients(keep_as(int8(), norm, x));
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_TRUE(own[i].equal(exact[i])) << i;
}

TEST_F(KeepAs, NothingIsKeptWithoutGradients) {
  const at::NoGradGuard no_grad;
  const ProbeScope probe;
  keep_as(
      int8(), [](const Tensor& v) { return v.exp(); }, input);
  EXPECT_EQ(live(probe), 0);
}

TEST_F(KeepAs, AnUnknownWayIsRefused) {
  EXPECT_EQ(test::text_of<c10::ValueError>([] { keep_way("int4"); }),
            "way to keep is 'int4', wanted bf16, int8 or offload");
}

/// Products and rectifiers, then the sum of squares.
Chain layers_of(int count) {
  Chain chain;
  for (int i = 0; i < count; ++i) {
    torch::nn::Linear linear(kWidth, kWidth);
    chain.blocks.push_back(make_block("layer" + std::to_string(i), {linear.ptr()},
                                      [linear](const Tensor& x) mutable { return linear(x).relu(); }));
  }
  chain.blocks.push_back(make_block("loss", {}, [](const Tensor& x) { return x.square().sum(); }));
  return chain;
}

std::vector<Tensor> gradients(const Chain& chain, const Chain& planned, const Tensor& x) {
  run(planned, x).backward();
  std::vector<Tensor> all;
  for (const auto& block : chain.blocks) {
    for (auto& parameter : parameters_of(block)) {
      all.push_back(parameter.grad().clone());
      parameter.mutable_grad().reset();
    }
  }
  return all;
}

std::vector<Stage> stages_with_ways(const Chain& chain, const Tensor& x) {
  auto stages = stages_of(chain, rehearse(chain, {x}));
  for (const auto* way : lossy()) {
    const auto kept = kept_chain(chain, *way);
    add_keep(stages, *way, stages_of(kept, rehearse(kept, {x})));
  }
  return stages;
}

TEST_F(KeepAs, AStageHasTheBytesAndTheCostOfEachWay) {
  const auto chain = layers_of(3);
  const auto stages = stages_with_ways(chain, input);
  for (int i = 0; i < 3; ++i) {
    const auto& keeps = stages[i].keeps;
    ASSERT_EQ(keeps.size(), 3u);
    EXPECT_EQ(keeps[0].bytes, 0);  // its input and its output
    for (const int way : {1, 2}) {
      EXPECT_EQ(keeps[way].name, lossy()[way - 1]->name);
      EXPECT_EQ(keeps[way].bytes, 2 * packed_bytes(*lossy()[way - 1])) << i;
      EXPECT_FALSE(keeps[way].input || keeps[way].output) << i;
      EXPECT_GT(keeps[way].forward, keeps[0].forward);
      EXPECT_GT(keeps[way].backward, keeps[0].backward);
    }
  }
}

TEST_F(KeepAs, APlanIsExecutedAndItsPeakIsPredictedToTheByte) {
  const auto chain = layers_of(6);
  const auto stages = stages_with_ways(chain, input);
  const auto exact = gradients(chain, chain, input);
  for (const auto* text : {"0-6", "0:bf16 1-6", "0-5:bf16 6", "0-5:int8 6", "(0-1:bf16 2) 3-4:int8 5-6",
                           "0:int8 1-2:bf16 (3 4:int8) 5-6", "0-1 (2 (3-4:bf16)) 5-6"}) {
    const auto plan = parse_plan(text);
    const auto planned = planned_chain(chain, plan);
    const auto predicted = compose(rehearse(planned, {input}), {}).account.peak_bytes();
    EXPECT_LE(predicted, cost_of(plan, stages).peak) << text;
    {
      const ProbeScope probe;
      run(planned, input).backward();
      EXPECT_EQ(probe.account().peak_bytes(), predicted) << text;
    }
    for (const auto& block : chain.blocks) {
      for (auto& parameter : parameters_of(block)) parameter.mutable_grad().reset();
    }
    const auto own = gradients(chain, planned, input);
    const bool is_lossy = std::string(text).find(':') != std::string::npos;
    for (size_t i = 0; i < own.size(); ++i) {
      const double error = (own[i] - exact[i]).norm().item<double>() / exact[i].norm().item<double>();
      EXPECT_LE(error, is_lossy ? 0.02 : 0) << text << ' ' << i;
    }
  }
}

TEST_F(KeepAs, NeighboursInOneWayPackWhatBothSaveOnce) {
  const auto chain = layers_of(4);
  const auto saved = [&](const char* text) {
    return compose(rehearse(planned_chain(chain, parse_plan(text)), {input}), {}).saved;
  };
  EXPECT_EQ(saved("0-4"), 4 * kBytes + 4);                                // of each layer the result; the loss
  EXPECT_EQ(saved("0-3:bf16 4"), 5 * packed_bytes(bf16()) + kBytes + 4);  // the input; the loss keeps the last
  EXPECT_EQ(saved("0-1:bf16 2-3:int8 4"),
            3 * packed_bytes(bf16()) + 3 * packed_bytes(int8()) + kBytes + 4);  // the second result in both
}

TEST_F(KeepAs, ABudgetBelowTheLeastOfPlainPlansIsReached) {
  const auto chain = layers_of(12);
  const auto plain = stages_of(chain, rehearse(chain, {input}));
  const auto stages = stages_with_ways(chain, input);
  const auto least = least_budget(plain).bytes;
  EXPECT_LT(least_budget(stages).bytes, least);
  const auto plan = plan_optimal(stages, least - 1);
  EXPECT_LT(compose(rehearse(planned_chain(chain, plan), {input}), {}).account.peak_bytes(), least);
  EXPECT_NE(to_text(plan).find(':'), std::string::npos) << to_text(plan);
}

TEST_F(KeepAs, AWayBeyondTheTableIsRefused) {
  EXPECT_EQ(test::text_of<c10::ValueError>([] { planned_chain(layers_of(1), parse_plan("0:4 1")); }),
            "plan: it keeps block 0 in the way 4, wanted 0 to 3");
}

}  // namespace
}  // namespace tandem::memory
