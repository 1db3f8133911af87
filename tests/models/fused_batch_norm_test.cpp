#include "tandem/models/detail/fused_batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "tandem/base/rng.h"

namespace tandem::models {
namespace {

struct Case {
  std::vector<int64_t> shape;
  bool relu, residual;
};

Tensor random(const std::vector<int64_t>& shape, uint64_t stream, double mean = 0) {
  const auto values = at::empty(shape);
  fill_normal_(values, 1.0, 23, stream);
  return values.add_(mean);
}

Tensor channels_last(const Tensor& values) {
  return values.dim() == 4 ? values.contiguous(at::MemoryFormat::ChannelsLast) : values;
}

detail::BatchNormState make_state(int64_t channels, at::ScalarType type) {
  return {random({channels}, 2, 1.0).to(type).requires_grad_(),
          random({channels}, 3).to(type).requires_grad_(),
          random({channels}, 4).to(type),
          random({channels}, 5).abs().to(type),
          0.1,
          1e-5};
}

/// Output, gradients of input, residual, weight and bias, then the running statistics.
std::vector<Tensor> run(const Case& c, at::ScalarType type, bool fused, double mean = 0.3, const Tensor& mask = {}) {
  const int64_t channels = c.shape[1];
  const auto state = make_state(channels, fused ? at::kFloat : at::kDouble);
  const auto input = channels_last(random(c.shape, 1, mean)).to(type).requires_grad_();
  const auto residual = c.residual ? channels_last(random(c.shape, 6)).to(type).requires_grad_() : Tensor();
  Tensor output;
  if (fused) {
    EXPECT_TRUE(detail::can_fuse(input, residual, state));
    output = detail::fused_batch_norm(input, state, true, c.relu, residual);
  } else {
    output =
        at::batch_norm(input, state.weight, state.bias, state.running_mean, state.running_var, true, 0.1, 1e-5, false);
    if (c.residual) output = output + residual;
    if (c.relu) output = output.relu();
  }
  const auto gradient = random(c.shape, 7).to(type);
  output.backward(mask.defined() ? gradient * mask : gradient);
  return {output.detach(),     input.grad(),      c.residual ? residual.grad() : at::zeros({1}),
          state.weight.grad(), state.bias.grad(), state.running_mean,
          state.running_var};
}

void expect_equal_to_float64(const Case& c, at::ScalarType type, double tolerance) {
  // The reference sees the same rounded numbers: only the arithmetic differs. No gradient reaches the rectifier where
  // rounding decides on which side of its edge a number lies.
  Tensor clear;
  if (c.relu) clear = run({c.shape, false, c.residual}, at::kDouble, false)[0].abs() > tolerance;
  const auto fused = run(c, type, true, 0.3, clear), exact = run(c, at::kDouble, false, 0.3, clear);
  for (size_t i = 0; i < fused.size(); ++i) {
    const double scale = std::max(1.0, exact[i].abs().max().item<double>());
    EXPECT_LE((fused[i].to(at::kDouble) - exact[i]).abs().max().item<double>(), tolerance * scale)
        << "result " << i << " of " << c.shape << (c.relu ? " relu" : "") << (c.residual ? " residual" : "");
  }
}

TEST(FusedBatchNorm, EqualsTheSeparateStepsInFloat64) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{2, 16, 1, 1}, {3, 48, 5, 7}, {40, 16, 30, 30}, {9, 128}}) {
    for (const bool relu : {false, true}) {
      for (const bool residual : {false, true}) expect_equal_to_float64({shape, relu, residual}, at::kFloat, 2e-4);
    }
  }
}

TEST(FusedBatchNorm, AMeanFarFromZeroCostsNoPrecision) {
  const Case c{{16, 16, 32, 32}, false, false};
  const auto fused = run(c, at::kFloat, true, 1000.0), exact = run(c, at::kDouble, false, 1000.0);
  EXPECT_LT((fused[0].to(at::kDouble) - exact[0]).abs().max().item<double>(), 2e-3);
  EXPECT_LT((fused[6].to(at::kDouble) - exact[6]).abs().max().item<double>(), 1e-6);
}

TEST(FusedBatchNorm, Bfloat16StaysWithinItsRounding) {
  for (const bool residual : {false, true}) {
    const Case c{{8, 32, 9, 9}, false, residual};  // a rectifier's edge would make the comparison jump
    expect_equal_to_float64(c, at::kBFloat16, 2e-2);
  }
  const auto output = run({{8, 32, 9, 9}, true, true}, at::kBFloat16, true)[0];
  EXPECT_EQ(output.scalar_type(), at::kBFloat16);
  EXPECT_GE(output.min().item<double>(), 0.0);
}

TEST(FusedBatchNorm, TheNumberOfThreadsChangesNoBit) {
  const Case c{{40, 16, 30, 30}, true, true};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = run(c, at::kFloat, true);
  at::set_num_threads(3);
  const auto three = run(c, at::kFloat, true);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(three[i])) << i;
}

TEST(FusedBatchNorm, InEvaluationUsesTheRunningStatistics) {
  const auto state = make_state(32, at::kFloat);
  const auto input = channels_last(random({4, 32, 6, 6}, 1));
  const at::NoGradGuard no_grad;
  const auto mean = state.running_mean.clone();
  const auto expected =
      at::batch_norm(input, state.weight, state.bias, mean, state.running_var, false, 0.1, 1e-5, false);
  const auto output = detail::fused_batch_norm(input, state, false, true, {});
  EXPECT_TRUE(at::allclose(output, expected.relu(), 1e-5, 1e-5));
  EXPECT_TRUE(state.running_mean.equal(mean));
}

TEST(FusedBatchNorm, ANotANumberIsNotHidden) {
  auto input = channels_last(random({4, 16, 3, 3}, 1));
  input[0][5][1][1].fill_(std::nan(""));
  const auto output = detail::fused_batch_norm(input, make_state(16, at::kFloat), true, true, {});
  EXPECT_TRUE(output.select(1, 5).isnan().all().item<bool>());
  EXPECT_FALSE(output.select(1, 4).isnan().any().item<bool>());
}

TEST(FusedBatchNorm, LeavesWhatItCannotDoToOthers) {
  const auto state = make_state(16, at::kFloat);
  EXPECT_FALSE(detail::can_fuse(random({2, 16, 4, 4}, 1), {}, state)) << "channels first";
  EXPECT_FALSE(detail::can_fuse(random({8, 20}, 1), {}, make_state(20, at::kFloat))) << "20 channels";
  EXPECT_FALSE(detail::can_fuse(random({8, 16}, 1).to(at::kDouble), {}, state)) << "float64";
  EXPECT_FALSE(detail::can_fuse(at::empty({0, 16}), {}, state)) << "nothing";
  EXPECT_FALSE(detail::can_fuse(random({8, 16}, 1), random({8, 16}, 1).to(at::kBFloat16), state)) << "mixed";
}

/// The gradients of a function of the first gradients, by input, weight and the gradient of the output.
std::vector<Tensor> second_derivatives(const Case& c, bool is_affine, at::ScalarType type, const Tensor& clear) {
  auto state = make_state(c.shape[1], type);
  if (!is_affine) state.weight = state.bias = Tensor();
  const auto input = channels_last(random(c.shape, 1, 0.3)).to(type).requires_grad_();
  const auto residual = c.residual ? channels_last(random(c.shape, 6)).to(type) : Tensor();
  auto upstream = random(c.shape, 7).to(type);
  if (clear.defined()) upstream = upstream * clear;
  upstream.requires_grad_();
  Tensor output;
  if (type == at::kFloat) {
    output = detail::fused_batch_norm(input, state, true, c.relu, residual);
  } else {
    output = at::batch_norm(input, state.weight, state.bias, {}, {}, true, 0.1, 1e-5, false);
    if (c.residual) output = output + residual;
    if (c.relu) output = output.relu();
  }
  std::vector<Tensor> by = {input};
  if (is_affine) by.push_back(state.weight);
  const auto first = torch::autograd::grad({output}, by, {upstream}, /*retain_graph=*/true, /*create_graph=*/true);
  by.push_back(upstream);
  auto sum = (first[0] * random(c.shape, 8).to(type)).sum();
  if (is_affine) sum = sum + (first[1] * random({c.shape[1]}, 9).to(type)).sum();
  auto second = torch::autograd::grad({sum}, by);
  second.push_back(first[0].detach());
  second.push_back(output.detach());
  return second;
}

TEST(FusedBatchNorm, SecondDerivativesEqualThoseInFloat64) {
  for (const bool is_affine : {true, false}) {
    for (const bool relu : {false, true}) {
      for (const bool residual : {false, true}) {
        const Case c{{3, 48, 5, 7}, relu, residual};
        const Case before{c.shape, false, residual};
        const auto clear = second_derivatives(before, is_affine, at::kDouble, {}).back().abs() > 1e-4;
        const auto fused = second_derivatives(c, is_affine, at::kFloat, clear.to(at::kFloat));
        const auto exact = second_derivatives(c, is_affine, at::kDouble, clear.to(at::kDouble));
        ASSERT_EQ(fused.size(), exact.size());
        for (size_t i = 0; i < fused.size(); ++i) {
          const double scale = std::max(1.0, exact[i].abs().max().item<double>());
          EXPECT_LE((fused[i].to(at::kDouble) - exact[i]).abs().max().item<double>(), 1e-4 * scale)
              << "result " << i << (is_affine ? " affine" : "") << (relu ? " relu" : "")
              << (residual ? " residual" : "");
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::models
