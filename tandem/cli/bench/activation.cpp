#include "tandem/cli/bench/activation.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/custom_function.h>

#include <chrono>
#include <functional>

#include "tandem/base/median.h"
#include "tandem/base/rng.h"
#include "tandem/base/seconds.h"
#include "tandem/memory/activation.h"
#include "tandem/memory/device_meter.h"
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

/// The device's work is done when this returns.
void wait_for(c10::DeviceType device) {
  if (device == at::kCPU) return;
  const c10::impl::VirtualGuardImpl guard(device);
  guard.synchronizeStream(guard.getStream(guard.getDevice()));
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
    const auto on = values.options();
    state_ = {at::ones({channels}, on).requires_grad_(), at::zeros({channels}, on).requires_grad_(),
              at::zeros({channels}, on), at::ones({channels}, on)};
  }

  TimedActivation step() {
    memory::ProbeScope probe;
    TimedActivation step;
    auto input = Before::apply(trigger_, values_);
    const auto device = values_.device().type();
    wait_for(device);
    const auto start = Clock::now();
    auto end = Behind::apply(operation_(std::move(input), state_));
    wait_for(device);
    step.seconds = seconds_since(start);
    step.kept = probe.account().live_bytes();
    Behind::gradient = gradient_.clone();
    probe.reset_peak();
    wait_for(device);
    const auto backward_start = Clock::now();
    end.backward();
    wait_for(device);
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

/// The places in ResNet-50 where an activation follows a normalisation, images of 224 pixels: eight, or as many as fill
/// a GPU.
std::vector<Shape> shapes_of(const ActivationBench& bench) {
  if (bench.quick) return {{2, 64, 28, 28}, {2, 256, 7, 7}};
  const int64_t images = bench.device == at::kCPU ? 8 : 256;
  return {
      {images, 64, 112, 112}, {images, 64, 56, 56}, {images, 128, 28, 28}, {images, 256, 14, 14}, {images, 512, 7, 7}};
}

ActivationCase compared(const Pair& pair, const Shape& shape, const ActivationBench& bench) {
  const auto values = drawn(shape, 1).to(bench.device), gradient = drawn(shape, 2).to(bench.device);
  Subject own(pair.operation, values, gradient), peer(pair.other, values, gradient);
  own.step();
  peer.step();  // the first steps do not count
  ActivationCase result{pair.name, pair.peer, shape};
  std::vector<double> seconds, peer_seconds, ratios;
  for (int i = 0; i < bench.rounds; ++i) {
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
  const auto on = drawn.x.options().dtype(type);
  const AbnState state{at::full({kChannels}, weight, on).requires_grad_(),
                       drawn.bias.to(type, /*non_blocking=*/false, /*copy=*/true).requires_grad_(),
                       at::zeros({kChannels}, on), at::ones({kChannels}, on)};
  operation(drawn.x.to(type, /*non_blocking=*/false, /*copy=*/true), state).backward(drawn.gradient.to(type));
  return state.weight.grad().to(at::kDouble);
}

std::vector<AbnErrorCase> errors(c10::DeviceType device) {
  struct Kind {
    const char* name;
    Invertible activation;
    Tensor (*plain)(Tensor y);
  };
  const std::vector<Kind> kinds = {
      {"abn-leaky", Invertible::leaky_relu, [](Tensor y) { return at::leaky_relu(y, memory::kLeakySlope); }},
      {"abn-elu", Invertible::elu, [](Tensor y) { return at::elu(y); }},
      {"abn-swish", Invertible::swish, [](Tensor y) { return at::silu(y); }}};
  const auto bias = at::empty({kChannels});
  fill_uniform_(bias, 1.0, 41, 3);
  const Drawn numbers{drawn({16, kChannels, 28, 28}, 1).to(device), drawn({16, kChannels, 28, 28}, 2).to(device),
                      bias.to(device)};
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
  memory::meter_memory_of(bench.device);
  ActivationResult result;
  for (const auto& pair : pairs()) {
    for (const auto& shape : shapes_of(bench)) result.cases.push_back(compared(pair, shape, bench));
  }
  result.errors = errors(bench.device);
  return result;
}

}  // namespace tandem::cli
