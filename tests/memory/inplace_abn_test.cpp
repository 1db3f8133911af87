#include "tandem/memory/inplace_abn.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "tandem/base/context.h"
#include "tandem/base/rng.h"
#include "tandem/memory/meter.h"
#include "tests/support/text_of.h"

namespace tandem::memory {
namespace {

using kernels::Invertible;

constexpr std::array kActivations = {Invertible::identity, Invertible::leaky_relu, Invertible::elu, Invertible::swish};

class InplaceAbnTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_meter(); }
};

Tensor random(const std::vector<int64_t>& shape, uint64_t stream, double mean = 0) {
  const auto values = at::empty(shape, at::kDouble);
  fill_normal_(values, 1.0, 29, stream);
  return values.add_(mean);
}

/// Weights of both signs, from 0.2 on: float32's error grows with 1 / weight.
AbnState make_state(int64_t channels, at::ScalarType type = at::kDouble) {
  const auto drawn = random({channels}, 2), weight = drawn + 0.2 * drawn.sign();
  return {weight.to(type).requires_grad_(), random({channels}, 3).to(type).requires_grad_(),
          random({channels}, 4).to(type), random({channels}, 5).abs().add_(0.1).to(type)};
}

Tensor activated(Invertible activation, const Tensor& y) {
  if (activation == Invertible::leaky_relu) return at::leaky_relu(y, kLeakySlope);
  if (activation == Invertible::elu) return at::elu(y);
  return activation == Invertible::swish ? at::silu(y) : y;
}

struct Case {
  std::vector<int64_t> shape;
  Invertible activation;
  bool training = true;
  AbnForm form = AbnForm::one;
  at::ScalarType drawn = at::kDouble;  // which input and gradient are rounded to
};

/// Result, gradients of input, weight and bias, then the running statistics. `product` is between the leaf and the
/// operation, which overwrites its input.
std::vector<Tensor> run(const Case& c, bool in_place, at::ScalarType type = at::kDouble) {
  const auto state = make_state(c.shape[1], type == at::kBFloat16 ? at::kFloat : type);
  auto leaf = random(c.shape, 1, 0.3).to(c.drawn).to(type);
  if (leaf.dim() == 4) leaf = leaf.contiguous(at::MemoryFormat::ChannelsLast);
  leaf.requires_grad_();
  const auto x = leaf * 1;
  const auto z = in_place ? inplace_abn(x, c.activation, state, c.training, c.form)
                          : activated(c.activation, at::batch_norm(x, state.weight, state.bias, state.running_mean,
                                                                   state.running_var, c.training, 0.1, 1e-5, false));
  EXPECT_EQ(z.data_ptr() == x.data_ptr(), in_place);
  (z * random(c.shape, 7).to(c.drawn).to(type)).sum().backward();
  return {z.detach(), leaf.grad(), state.weight.grad(), state.bias.grad(), state.running_mean, state.running_var};
}

void expect_near(const std::vector<Tensor>& results, const std::vector<Tensor>& expected, double tolerance) {
  for (size_t i = 0; i < results.size(); ++i) {
    const double scale = std::max(1.0, expected[i].abs().max().item<double>());
    EXPECT_LE((results[i].to(at::kDouble) - expected[i]).abs().max().item<double>(), tolerance * scale) << i;
  }
}

TEST_F(InplaceAbnTest, EqualsBatchNormAndActivationInFloat64) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{2, 16, 1, 1}, {3, 5, 4, 7}, {11, 16, 17, 17}, {9, 19}}) {
    for (const auto activation : kActivations) {
      for (const bool training : {true, false}) {
        for (const auto form : {AbnForm::one, AbnForm::two}) {
          SCOPED_TRACE(testing::Message() << shape << " activation " << static_cast<int>(activation) << training);
          const Case c{shape, activation, training, form};
          // Swish is flat at its minimum: half the digits of y are lost there, and count with the slope.
          expect_near(run(c, true), run(c, false), activation == Invertible::swish ? 1e-9 : 1e-11);
        }
      }
    }
  }
}

TEST_F(InplaceAbnTest, Float32StaysNearFloat64) {
  for (const auto activation : kActivations) {
    const Case c{{11, 16, 17, 17}, activation};
    // Swish as above: where its slope is 0, an error of sqrt(6e-8 * 0.28) in y.
    expect_near(run(c, true, at::kFloat), run(c, false), activation == Invertible::swish ? 1e-4 : 2e-5);
  }
}

/// x, z and their gradients have 8 bits; parameters and sums have float32's.
TEST_F(InplaceAbnTest, Bfloat16StaysNearFloat64) {
  for (const auto activation : kActivations) {
    for (const auto form : {AbnForm::one, AbnForm::two}) {
      const Case c{{11, 16, 17, 17}, activation, true, form, at::kBFloat16};
      const auto results = run(c, true, at::kBFloat16), exact = run(c, false);
      EXPECT_EQ(results[0].scalar_type(), at::kBFloat16);
      EXPECT_EQ(results[1].scalar_type(), at::kBFloat16);
      for (const int of : {2, 3, 4, 5}) EXPECT_EQ(results[of].scalar_type(), at::kFloat);
      expect_near(results, exact, 0.02);
    }
  }
}

TEST_F(InplaceAbnTest, TheGradientIsTheDifferenceOfItsValues) {
  constexpr double kStep = 1e-6;
  for (const auto activation : kActivations) {
    const auto gradients = run({{4, 3, 2, 2}, activation}, true);
    const auto weights = random({4, 3, 2, 2}, 7);
    const auto sum_at = [&](int64_t place, double step) {
      const at::NoGradGuard no_grad;
      auto x = random({4, 3, 2, 2}, 1, 0.3);
      x.view(-1)[place] += step;
      x = x.contiguous(at::MemoryFormat::ChannelsLast);
      return (inplace_abn(x, activation, make_state(3), true) * weights).sum().item<double>();
    };
    for (int64_t i = 0; i < 48; ++i) {
      const double difference = (sum_at(i, kStep) - sum_at(i, -kStep)) / (2 * kStep);
      EXPECT_NEAR(gradients[1].reshape(-1)[i].item<double>(), difference, 1e-7);
    }
  }
}

TEST_F(InplaceAbnTest, ASmallWeightIsBoundedAndKeepsItsSign) {
  const auto weight = at::tensor({1e-9, -1e-9, 0.0, -0.5}, at::kDouble), zeros = at::zeros({4}, at::kDouble);
  const auto bound = at::tensor({kLeastWeight, -kLeastWeight, kLeastWeight, -0.5}, at::kDouble);
  const auto x = random({8, 4}, 1);
  const auto z = inplace_abn(x.clone(), Invertible::identity, {weight, zeros, zeros.clone(), zeros + 1}, true);
  const auto expected = at::batch_norm(x, bound, zeros, {}, {}, true, 0.1, 1e-5, false);
  EXPECT_TRUE(at::allclose(z, expected, 1e-12, 1e-18));
}

TEST_F(InplaceAbnTest, TheNumberOfThreadsChangesNoBit) {
  const Case c{{11, 16, 17, 17}, Invertible::swish};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = run(c, true, at::kFloat);
  at::set_num_threads(3);
  const auto three = run(c, true, at::kFloat);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(three[i])) << i;
}

/// Backward overwrites z where it is free, which spares swish's second inversion.
TEST_F(InplaceAbnTest, AResultThatOthersHoldStaysAndChangesNoBit) {
  enum class Holder { none, caller, graph };
  const auto gradient_with = [](Invertible activation, Holder holder, AbnForm form) {
    const auto leaf = random({11, 16, 17, 17}, 1, 0.3).to(at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
    const auto state = make_state(16, at::kFloat);
    leaf.requires_grad_();
    auto z = inplace_abn(leaf * 1, activation, state, true, form);
    const auto before = z.detach().clone();
    const auto sum = (z * random({11, 16, 17, 17}, 7).to(at::kFloat)).sum();
    const auto held = holder == Holder::caller ? z.detach() : Tensor();
    z.reset();
    sum.backward({}, /*retain_graph=*/holder == Holder::graph);
    EXPECT_TRUE(!held.defined() || held.equal(before));
    if (holder == Holder::graph) {
      leaf.mutable_grad().reset();
      state.weight.mutable_grad().reset();
      sum.backward();
    }
    return std::pair(leaf.grad(), state.weight.grad());
  };
  for (const auto activation : kActivations) {
    for (const auto form : {AbnForm::one, AbnForm::two}) {
      const auto [free, free_weight] = gradient_with(activation, Holder::none, form);
      for (const auto holder : {Holder::caller, Holder::graph}) {
        const auto [gradient, weight] = gradient_with(activation, holder, form);
        EXPECT_TRUE(gradient.equal(free) && weight.equal(free_weight)) << static_cast<int>(activation);
      }
    }
  }
}

TEST_F(InplaceAbnTest, OtherLayoutsTypesAndDimensionsGiveTheSame) {
  for (const auto activation : kActivations) {
    const auto state = make_state(16);
    const auto x = random({6, 16, 3, 5}, 1);
    const auto expected =
        activated(activation, at::batch_norm(x, state.weight, state.bias, {}, {}, true, 0, 1e-5, false));
    const auto first = inplace_abn(x.clone(), activation, state, true);
    EXPECT_TRUE(at::allclose(first, expected, 1e-11, 1e-12)) << "channels first";
    const auto volume = inplace_abn(x.view({6, 16, 3, 5, 1}).clone(), activation, state, true);
    EXPECT_TRUE(at::allclose(volume.view(x.sizes()), expected, 1e-11, 1e-12)) << "five dimensions";
    const auto half = make_state(16, at::kFloat);
    const auto rounded = inplace_abn(x.to(at::kBFloat16), activation, half, true);
    EXPECT_TRUE(at::allclose(rounded.to(at::kDouble), expected, 5e-2, 5e-2)) << "bfloat16";
  }
  EXPECT_EQ(inplace_abn(at::empty({0, 16}, at::kDouble), Invertible::elu, make_state(16), true).size(0), 0);
}

TEST_F(InplaceAbnTest, RunningStatisticsAreHeldInAContextThatHoldsThem) {
  auto context = current_context();
  context.statistics = BatchStatistics::hold;
  const auto state = make_state(4);
  const auto mean = state.running_mean.clone();
  {
    const ContextScope scope(context);
    inplace_abn(random({8, 4}, 1), Invertible::elu, state, true);
    EXPECT_TRUE(state.running_mean.equal(mean));
  }
  inplace_abn(random({8, 4}, 1), Invertible::elu, state, true);
  EXPECT_FALSE(state.running_mean.equal(mean));
}

/// Bytes after forward and at the peak of values * leaf ──▶ operation ──▶ z ──▶ * factor ──▶ sum. The last product
/// keeps z as the next layer would, or nothing, so that the peak is that of the operation's own backward.
struct Memory {
  int64_t kept, peak;
};
constexpr int64_t kRows = 2048, kChannels = 64, kUnit = 4 * kRows * kChannels, kState = 3 * 8 * kChannels;

template <class Operation>
Memory memory_of(const Operation& operation, bool next_keeps, at::ScalarType type = at::kFloat) {
  const auto values = random({kRows, kChannels}, 1).to(type);
  const auto leaf = at::ones({}, type).requires_grad_(), factor = at::ones({}, type).requires_grad_(next_keeps);
  const auto state = make_state(kChannels, at::kFloat);
  ProbeScope probe;
  auto sum = (operation(values * leaf, state) * factor).sum();
  const auto kept = probe.account().live_bytes();
  probe.reset_peak();
  sum.backward();
  return {kept, probe.account().peak_bytes()};
}

Memory composed_memory(Tensor (*activation)(const Tensor&), bool next_keeps) {
  return memory_of(
      [&](const Tensor& x, const AbnState& state) {
        return activation(
            at::batch_norm(x, state.weight, state.bias, state.running_mean, state.running_var, true, 0.1, 1e-5, false));
      },
      next_keeps);
}

Memory in_place_memory(Invertible activation, bool next_keeps, at::ScalarType type = at::kFloat) {
  return memory_of([&](const Tensor& x, const AbnState& state) { return inplace_abn(x, activation, state, true); },
                   next_keeps, type);
}

TEST_F(InplaceAbnTest, KeepsItsResultAlone) {
  const auto relu = composed_memory([](const Tensor& y) { return y.clone().relu_(); }, true);
  const auto silu = composed_memory([](const Tensor& y) { return at::silu(y); }, true);
  const auto leaky = in_place_memory(Invertible::leaky_relu, true), swish = in_place_memory(Invertible::swish, true);
  EXPECT_EQ(leaky.kept, kUnit + kState + 4);  // z, three float64 of each channel, the sum
  EXPECT_EQ(swish.kept, kUnit + kUnit / 32 + kState + 4);
  EXPECT_GE(relu.kept, 2 * kUnit);
  EXPECT_GE(silu.kept, 3 * kUnit);
  EXPECT_LE(leaky.peak, relu.peak - kUnit + 2 * kState);
  EXPECT_LE(swish.peak, silu.peak - 2 * kUnit + kUnit / 32 + 2 * kState);
}

TEST_F(InplaceAbnTest, BackwardWritesOverTheIncomingGradient) {
  constexpr int64_t kGradients = 2 * 4 * kChannels;  // of weight and bias
  for (const auto activation : {Invertible::leaky_relu, Invertible::elu, Invertible::identity}) {
    EXPECT_EQ(in_place_memory(activation, false).peak, 2 * kUnit + kState + kGradients + 8);
  }
  EXPECT_EQ(in_place_memory(Invertible::swish, false).peak, 2 * kUnit + kUnit / 32 + kState + kGradients + 8);
  EXPECT_GE(composed_memory([](const Tensor& y) { return y.clone().relu_(); }, false).peak, 4 * kUnit);
}

TEST_F(InplaceAbnTest, Bfloat16TakesHalfTheBytes) {
  constexpr int64_t kHalf = kUnit / 2, kGradients = 2 * 4 * kChannels;
  for (const auto activation : kActivations) {
    const int64_t sides = activation == Invertible::swish ? kUnit / 32 : 0;
    EXPECT_EQ(in_place_memory(activation, true, at::kBFloat16).kept, kHalf + sides + kState + 2);
    EXPECT_EQ(in_place_memory(activation, false, at::kBFloat16).peak, 2 * kHalf + sides + kState + kGradients + 4);
  }
}

TEST_F(InplaceAbnTest, AnInputThatItsOperationNeedsIsRefusedByName) {
  for (const auto activation : {Invertible::leaky_relu, Invertible::swish}) {
    const auto x = random({8, 4}, 1).requires_grad_();
    EXPECT_EQ(
        test::text_of<c10::ValueError>([&] { inplace_abn(x.sigmoid(), activation, make_state(4), true); }),
        "in-place batch normalisation: its input, the output of SigmoidBackward0, is also held elsewhere, such as "
        "for that operation's backward, wanted it to be free to overwrite: use norm batch here, or copy the "
        "input");
    EXPECT_NO_THROW(inplace_abn(x.sigmoid().clone(), activation, make_state(4), true).sum().backward());
  }
}

TEST_F(InplaceAbnTest, AnotherReaderOfTheInputIsCaughtInBackward) {
  const auto x = random({8, 4}, 1).requires_grad_() * 1;
  const auto other = x.square();  // keeps x
  const auto z = inplace_abn(x, Invertible::elu, make_state(4), true);
  const auto text = test::text_of<c10::Error>([&] { (z + other).sum().backward(); });
  EXPECT_NE(text.find("modified by an inplace operation"), std::string::npos) << text;
}

TEST_F(InplaceAbnTest, AResultThatIsOverwrittenIsCaughtInBackward) {
  const auto x = random({8, 4}, 1).requires_grad_() * 1;
  auto z = inplace_abn(x, Invertible::elu, make_state(4), true);
  z.add_(1);
  const auto text = test::text_of<c10::Error>([&] { z.sum().backward(); });
  EXPECT_NE(text.find("modified by an inplace operation"), std::string::npos) << text;
}

TEST_F(InplaceAbnTest, ViewsAreCopiedAndLeavesRefused) {
  const auto base = random({16, 4}, 1);
  const auto before = base.clone();
  inplace_abn(base.slice(0, 0, 8), Invertible::elu, make_state(4), true);
  EXPECT_TRUE(base.equal(before));
  const auto leaf = random({8, 4}, 1).requires_grad_();
  const auto text = test::text_of<c10::Error>([&] { inplace_abn(leaf, Invertible::elu, make_state(4), true); });
  EXPECT_NE(text.find("a leaf Variable that requires grad is being used in an in-place operation"), std::string::npos);
}

TEST_F(InplaceAbnTest, RefusesSecondDerivatives) {
  const auto x = random({8, 4}, 1).requires_grad_();
  const auto z = inplace_abn(x * 1, Invertible::elu, make_state(4), true);
  try {
    torch::autograd::grad({z.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    FAIL() << "nothing thrown";
  } catch (const c10::NotImplementedError& error) {
    EXPECT_NE(error.msg().find("for second derivatives use norm batch"), std::string::npos);
  }
}

TEST_F(InplaceAbnTest, ABackwardCanBeRepeated) {
  const auto x = random({8, 4}, 1).requires_grad_();
  const auto z = inplace_abn(x * 1, Invertible::swish, make_state(4), true);
  const auto sum = (z * random({8, 4}, 7)).sum();
  sum.backward({}, /*retain_graph=*/true);
  const auto once = x.grad().clone();
  sum.backward();
  EXPECT_TRUE(x.grad().equal(2 * once));
}

}  // namespace
}  // namespace tandem::memory
