#include "tandem/cli/bench/activation.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <chrono>
#include <functional>

#include "tandem/base/median.h"
#include "tandem/base/rng.h"
#include "tandem/base/seconds.h"
#include "tandem/memory/activation.h"
#include "tandem/memory/inplace_abn.h"
#include "tandem/memory/meter.h"

namespace tandem::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Shape = std::vector<int64_t>;
using kernels::Invertible;
using memory::AbnForm;
using memory::AbnState;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor drawn(const Shape& shape, uint64_t stream) {
  auto values = at::empty(shape, at::kFloat);
  fill_normal_(values, 1.0, 41, stream);
  return values.dim() == 4 ? values.contiguous(at::MemoryFormat::ChannelsLast) : values;
}

/// The layer before: makes the input, keeps nothing of it, and needs no time in backward.
struct Before : torch::autograd::Function<Before> {
  static Tensor forward(AutogradContext*, const Tensor& trigger, const Tensor& values) { return values.clone(); }
  static variable_list backward(AutogradContext*, const variable_list&) { return {Tensor(), Tensor()}; }
};

/// The layer behind: keeps its input as a convolution does, and hands over a gradient that nobody else holds.
struct Behind : torch::autograd::Function<Behind> {
  static Tensor forward(AutogradContext* context, const Tensor& y) {
    context->save_for_backward({y});
    return at::zeros({});
  }
  static variable_list backward(AutogradContext*, const variable_list&) { return {std::move(gradient)}; }

  static inline thread_local Tensor gradient;
};

using ActivationCall = std::function<Tensor(Tensor x, const AbnState& state)>;

struct TimedActivation {
  double seconds = 0;
  int64_t kept = 0, peak = 0;
};

class Subject {
 public:
  Subject(ActivationCall operation, const Tensor& values, const Tensor& gradient)
      : operation_(std::move(operation)), values_(values), gradient_(gradient) {
    const int64_t channels = values.size(1);
    state_ = {at::ones({channels}).requires_grad_(), at::zeros({channels}).requires_grad_(), at::zeros({channels}),
              at::ones({channels})};
  }

  TimedActivation step() {
    memory::ProbeScope probe;
    TimedActivation step;
    auto input = Before::apply(trigger_, values_);
    const auto start = Clock::now();
    auto end = Behind::apply(operation_(std::move(input), state_));
    step.seconds = seconds_since(start);
    step.kept = probe.account().live_bytes();
    Behind::gradient = gradient_.clone();
    probe.reset_peak();
    const auto backward_start = Clock::now();
    end.backward();
    step.seconds += seconds_since(backward_start);
    step.peak = probe.account().peak_bytes();
    state_.weight.mutable_grad().reset();
    state_.bias.mutable_grad().reset();
    return step;
  }

 private:
  ActivationCall operation_;
  Tensor values_, gradient_, trigger_ = at::zeros({}).requires_grad_();
  AbnState state_;
};

struct Pair {
  const char *name, *peer;
  ActivationCall operation, other;
};

ActivationCall activation(const char* name) {
  return [apply = memory::activation_of(name).apply](Tensor x, const AbnState&) { return apply(x); };
}

ActivationCall plain(Tensor (*apply)(const Tensor& x)) {
  return [apply](Tensor x, const AbnState&) { return apply(x); };
}

ActivationCall in_place(Invertible activation) {
  return [activation](Tensor x, const AbnState& state) {
    return memory::inplace_abn(std::move(x), activation, state, /*training=*/true);
  };
}

ActivationCall separate(Tensor (*activation)(Tensor y)) {
  return [activation](Tensor x, const AbnState& state) {
    return activation(at::batch_norm(x, state.weight, state.bias, state.running_mean, state.running_var, true,
                                     state.momentum, state.epsilon, /*cudnn_enabled=*/false));
  };
}

std::vector<Pair> pairs() {
  return {
      {"swish-fused", "silu", activation("swish-fused"), plain([](const Tensor& x) { return at::silu(x); })},
      {"swish-fused", "swish-naive", activation("swish-fused"), activation("swish-naive")},
      {"swish-merged", "swish-naive", activation("swish-merged"), activation("swish-naive")},
      {"mish-fused", "mish", activation("mish-fused"), plain([](const Tensor& x) { return at::mish(x); })},
      {"gelu-fused", "gelu", activation("gelu-fused"), plain([](const Tensor& x) { return at::gelu(x); })},
      {"abn-leaky", "batch_norm + relu", in_place(Invertible::leaky_relu),
       separate([](Tensor y) { return y.relu_(); })},
      {"abn-elu", "batch_norm + elu", in_place(Invertible::elu), separate([](Tensor y) { return at::elu_(y); })},
      {"abn-swish", "batch_norm + silu", in_place(Invertible::swish), separate([](Tensor y) { return at::silu(y); })}};
}

/// The places in ResNet-50 where an activation follows a normalisation, eight images of 224 pixels.
std::vector<Shape> shapes_of(const ActivationBench& bench) {
  if (bench.quick) return {{2, 64, 28, 28}, {2, 256, 7, 7}};
  return {{8, 64, 112, 112}, {8, 64, 56, 56}, {8, 128, 28, 28}, {8, 256, 14, 14}, {8, 512, 7, 7}};
}

ActivationCase compared(const Pair& pair, const Shape& shape, int rounds) {
  const auto values = drawn(shape, 1), gradient = drawn(shape, 2);
  Subject own(pair.operation, values, gradient), peer(pair.other, values, gradient);
  own.step();
  peer.step();  // the first steps do not count
  ActivationCase result{pair.name, pair.peer, shape};
  std::vector<double> seconds, peer_seconds, ratios;
  for (int i = 0; i < rounds; ++i) {
    const auto a = own.step(), b = peer.step();
    seconds.push_back(a.seconds);
    peer_seconds.push_back(b.seconds);
    ratios.push_back(b.seconds / a.seconds);
    result.kept_bytes = a.kept;
    result.peer_kept_bytes = b.kept;
    result.peak_bytes = a.peak;
    result.peer_peak_bytes = b.peak;
  }
  result.seconds = median(seconds);
  result.peer_seconds = median(peer_seconds);
  result.speedup = median(ratios);
  return result;
}

constexpr int64_t kChannels = 64;

struct Drawn {
  Tensor x, gradient, bias;
};

/// The gradient of the weight.
Tensor weight_gradient(const ActivationCall& operation, const Drawn& drawn, double weight, at::ScalarType type) {
  const AbnState state{at::full({kChannels}, weight, type).requires_grad_(),
                       drawn.bias.to(type, /*non_blocking=*/false, /*copy=*/true).requires_grad_(),
                       at::zeros({kChannels}, type), at::ones({kChannels}, type)};
  operation(drawn.x.to(type, /*non_blocking=*/false, /*copy=*/true), state).backward(drawn.gradient.to(type));
  return state.weight.grad().to(at::kDouble);
}

std::vector<AbnErrorCase> errors() {
  struct Kind {
    const char* name;
    Invertible activation;
    Tensor (*plain)(Tensor y);
  };
  const std::vector<Kind> kinds = {
      {"abn-leaky", Invertible::leaky_relu, [](Tensor y) { return at::leaky_relu(y, memory::kLeakySlope); }},
      {"abn-elu", Invertible::elu, [](Tensor y) { return at::elu(y); }},
      {"abn-swish", Invertible::swish, [](Tensor y) { return at::silu(y); }}};
  const Drawn numbers{drawn({16, kChannels, 28, 28}, 1), drawn({16, kChannels, 28, 28}, 2), at::empty({kChannels})};
  fill_uniform_(numbers.bias, 1.0, 41, 3);
  std::vector<AbnErrorCase> all;
  for (const auto& [name, kind, plain] : kinds) {
    const auto form = [kind = kind](AbnForm form) {
      return
          [=](Tensor x, const AbnState& state) { return memory::inplace_abn(std::move(x), kind, state, true, form); };
    };
    for (const double weight : {1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5}) {
      const auto exact = weight_gradient(separate(plain), numbers, weight, at::kDouble);
      const auto error = [&](const ActivationCall& operation) {
        const auto difference = (weight_gradient(operation, numbers, weight, at::kFloat) - exact).abs().max();
        return (difference / exact.abs().max()).item<double>();
      };
      all.push_back({name, weight, error(form(AbnForm::one)), error(form(AbnForm::two)), error(separate(plain))});
    }
  }
  return all;
}

}  // namespace

ActivationResult bench_activation(const ActivationBench& bench) {
  memory::install_meter();
  ActivationResult result;
  for (const auto& pair : pairs()) {
    for (const auto& shape : shapes_of(bench)) result.cases.push_back(compared(pair, shape, bench.rounds));
  }
  result.errors = errors();
  return result;
}

}  // namespace tandem::cli
