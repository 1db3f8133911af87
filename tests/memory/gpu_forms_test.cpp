#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tandem/base/device_kernels.h"
#include "tandem/memory/activation.h"
#include "tandem/memory/device_meter.h"
#include "tandem/memory/inplace_abn.h"
#include "tandem/memory/keep_ways.h"
#include "tandem/memory/meter.h"
#include "tests/device/test_device.h"

// What uses kernels of GPUs: the same numbers as on the CPU, and the same bytes kept.
namespace tandem::memory {
namespace {

using kernels::Invertible;
using test::DelayedStreams;
using test::Delays;

c10::Device device() { return {at::kPrivateUse1, 0}; }

class GpuForms : public testing::Test {
 protected:
  void SetUp() override {
    install_meter();
    test::install_test_device();
    DelayedStreams::get().choose(Delays::longest);
  }
  void TearDown() override {
    EXPECT_EQ(DelayedStreams::get().take_findings(), std::vector<std::string>());
    DelayedStreams::get().choose(Delays::none);
    meter_memory_of(at::kCPU);
  }
};

double tolerance_of(at::ScalarType type) { return type == at::kBFloat16 ? 2e-2 : type == at::kFloat ? 2e-5 : 1e-12; }

void expect_near(const Tensor& there, const Tensor& here, double tolerance) {
  const auto a = there.cpu().to(at::kDouble), b = here.to(at::kDouble);
  EXPECT_LE((a - b).abs().max().item<double>(), tolerance * (1 + b.abs().max().item<double>()));
}

TEST_F(GpuForms, FusedActivations) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const auto* name : {"swish-fused", "mish-fused", "gelu-fused"}) {
      SCOPED_TRACE(std::string(name) + " " + c10::toString(type));
      const auto x = at::linspace(-9, 9, 7 * 33, at::kDouble).view({7, 33}).to(type);
      const auto on = [&](c10::Device where) {
        const auto own = x.to(where).requires_grad_();
        const auto y = activation_of(name).apply(own);
        const auto slope = torch::autograd::grad({(y * y).sum()}, {own})[0];
        return std::vector<Tensor>{y.detach(), slope};
      };
      const auto there = on(device()), here = on(at::kCPU);
      for (size_t i = 0; i < here.size(); ++i) expect_near(there[i], here[i], tolerance_of(type));
    }
  }
}

AbnState state_of(int64_t channels, at::ScalarType type, c10::Device where) {
  const auto line = at::linspace(-1, 1, channels, at::kDouble);
  const auto put = [&](const Tensor& x) { return x.to(type == at::kBFloat16 ? at::kFloat : type).to(where); };
  AbnState state;
  state.weight = put(line + 0.3).requires_grad_();
  state.bias = put(line * 0.5).requires_grad_();
  state.running_mean = put(line * 0.1);
  state.running_var = put(line.square() + 1);
  return state;
}

/// z, the gradients of x, weight and bias, and the running statistics.
std::vector<Tensor> abn_on(c10::Device where, const Tensor& values, Invertible activation, AbnForm form,
                           bool training) {
  auto state = state_of(values.size(1), values.scalar_type(), where);
  const auto x = values.to(where).requires_grad_();
  const auto z = inplace_abn(x * 1, activation, state, training, form);
  const auto weights = at::linspace(-1, 2, z.numel(), at::kDouble).view(z.sizes()).to(z.options());
  auto all = torch::autograd::grad({(z * weights).sum()}, {x, state.weight, state.bias});
  all.insert(all.end(), {z.detach(), state.running_mean, state.running_var});
  return all;
}

TEST_F(GpuForms, InPlaceAbn) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const auto activation : {Invertible::identity, Invertible::leaky_relu, Invertible::elu, Invertible::swish}) {
      for (const auto form : {AbnForm::one, AbnForm::two}) {
        for (const bool training : {true, false}) {
          for (const int64_t channels : {1, 5, 16, 19}) {
            const auto x = (at::linspace(-2, 3, 3 * channels * 4 * 5, at::kDouble) * 7).sin().view({3, channels, 4, 5});
            const auto values = x.to(type).contiguous(at::MemoryFormat::ChannelsLast);
            const auto there = abn_on(device(), values, activation, form, training);
            const auto here = abn_on(at::kCPU, values, activation, form, training);
            for (size_t i = 0; i < here.size(); ++i) {
              SCOPED_TRACE(i);
              expect_near(there[i], here[i], type == at::kFloat ? 2e-4 : 1e-10);
            }
          }
        }
      }
    }
  }
}

/// In bfloat16 the result is what backward begins with: both have one.
TEST_F(GpuForms, InPlaceAbnInBFloat16) {
  const auto x = at::linspace(-2, 3, 6 * 16 * 4, at::kDouble).sin().view({6, 16, 2, 2}).to(at::kBFloat16);
  const auto values = x.contiguous(at::MemoryFormat::ChannelsLast);
  for (const auto activation : {Invertible::leaky_relu, Invertible::swish}) {
    const auto there = abn_on(device(), values, activation, AbnForm::one, true);
    const auto here = abn_on(at::kCPU, values, activation, AbnForm::one, true);
    for (size_t i = 0; i < here.size(); ++i) expect_near(there[i], here[i], 5e-2);
  }
}

/// Between forward and backward there is z alone, and for swish a bit for each number.
TEST_F(GpuForms, InPlaceAbnKeepsItsResultAlone) {
  meter_memory_of(at::kPrivateUse1);
  const auto state = state_of(16, at::kFloat, device());
  const auto x = at::ones({8, 16, 4, 4}, at::device(device())).contiguous(at::MemoryFormat::ChannelsLast);
  const auto own = x.requires_grad_();
  const ProbeScope probe;
  const auto z = inplace_abn(own * 1, Invertible::swish, state, true);
  constexpr int64_t kZ = 8 * 16 * 4 * 4 * 4, kSides = 8 * 4 * 4 * 2, kNumbers = 3 * 16 * 8;
  EXPECT_EQ(probe.account().live_bytes(), kZ + kSides + kNumbers);
}

TEST_F(GpuForms, CodesOfOneByteAreTheCpusToTheBit) {
  const auto x = at::linspace(-5, 5, 3 * 301, at::kFloat).exp_().sin_();
  const auto& way = keep_way("int8");
  const auto there = way.pack(x.to(device())), here = way.pack(x);
  ASSERT_EQ(there.size(), here.size());
  for (size_t i = 0; i < here.size(); ++i) EXPECT_TRUE(there[i].cpu().equal(here[i]));
  const auto waits = DelayedStreams::get().num_waits();
  const auto back = way.unpack(there, x.numel(), at::device(device()).dtype(at::kFloat));
  EXPECT_EQ(DelayedStreams::get().num_waits(), waits);
  EXPECT_TRUE(back.cpu().equal(way.unpack(here, x.numel(), at::dtype(at::kFloat))));
}

TEST_F(GpuForms, WithoutKernelsOperatorsDoTheWork) {
  EXPECT_TRUE(have_kernels(Kernels::activation, at::ones({2}, at::device(device()))));
  EXPECT_FALSE(have_kernels(Kernels::batch_norm, at::ones({2}, at::device(device()))));
  leave_to_operators(Kernels::activation, true);
  EXPECT_FALSE(have_kernels(Kernels::activation, at::ones({2}, at::device(device()))));
  leave_to_operators(Kernels::activation, false);
  set_gpu_kernels(at::kCPU);
  EXPECT_FALSE(have_kernels(Kernels::activation, at::ones({2}, at::device(device()))));
  set_gpu_kernels(at::kPrivateUse1);
}

}  // namespace
}  // namespace tandem::memory
