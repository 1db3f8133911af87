#include "tandem/memory/activation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tandem/base/device_kernels.h"
#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/kernels/activation_kernels.h"
#include "tandem/kernels/gpu_kernels.h"
#include "tandem/memory/detail/sole_owner.h"
#include "tandem/memory/detail/stored_type.h"
#include "tandem/memory/gpu_launch.h"
#include "tandem/memory/inplace_abn.h"

namespace tandem::memory {
namespace {

using kernels::Curve;
using torch::autograd::variable_list;

constexpr int64_t kNumbersPerThread = 32768;

/// A smooth function: its kernel, its formulas in differentiable operations, and ATen's own.
struct Smooth {
  Curve curve;
  Tensor (*value)(const Tensor& x);
  Tensor (*slope)(const Tensor& x);
  Tensor (*aten)(const Tensor& x);
  Tensor (*aten_backward)(const Tensor& gradient, const Tensor& x, Tensor& over);  // may write its result to `over`
};

Tensor swish_slope(const Tensor& x) {
  const auto s = x.sigmoid();
  return s * (1 + x * (1 - s));
}

Tensor mish_slope(const Tensor& x) {
  const auto t = at::softplus(x).tanh();
  return t + x * x.sigmoid() * (1 - t * t);
}

Tensor normal_distribution(const Tensor& x) { return 0.5 * (1 + at::erf(x * M_SQRT1_2)); }

Tensor gelu_slope(const Tensor& x) {
  return normal_distribution(x) + x * at::exp(-0.5 * x * x) * (0.5 * M_2_SQRTPI * M_SQRT1_2);
}

constexpr Smooth kSwish = {
    Curve::swish, [](const Tensor& x) { return x * x.sigmoid(); }, swish_slope,
    [](const Tensor& x) { return at::silu(x); },
    [](const Tensor& gradient, const Tensor& x, Tensor& over) { return at::silu_backward_out(over, gradient, x); }};
constexpr Smooth kMish = {
    Curve::mish, [](const Tensor& x) { return x * at::softplus(x).tanh(); }, mish_slope,
    [](const Tensor& x) { return at::mish(x); },
    [](const Tensor& gradient, const Tensor& x, Tensor&) { return at::mish_backward(gradient, x); }};
constexpr Smooth kGelu = {
    Curve::gelu, [](const Tensor& x) { return x * normal_distribution(x); }, gelu_slope,
    [](const Tensor& x) { return at::gelu(x); },
    [](const Tensor& gradient, const Tensor& x, Tensor& over) { return at::gelu_backward_out(over, gradient, x); }};

bool has_kernel(const Tensor& x) { return have_kernels(Kernels::activation, x) && x.is_non_overlapping_and_dense(); }

Tensor fused_value(const Smooth& smooth, const Tensor& x) {
  if (!has_kernel(x)) return smooth.aten(x);
  Tensor y = at::empty_like(x);
  detail::as_stored(x, [&]<class T>(T) {
    const T* from = static_cast<const T*>(x.const_data_ptr());
    T* to = static_cast<T*>(y.mutable_data_ptr());
    if (!x.is_cpu()) {
      const GpuLaunch launch(x);
      return GpuLaunch::check(kernels::gpu::activate(smooth.curve, from, x.numel(), to, launch.stream()));
    }
    at::parallel_for(0, x.numel(), kNumbersPerThread, [&](int64_t begin, int64_t end) {
      kernels::activate(smooth.curve, from + begin, end - begin, to + begin);
    });
  });
  return y;
}

Tensor fused_gradient(const Smooth& smooth, Tensor gradient, const Tensor& x) {
  Tensor result = detail::result_over(gradient, x);
  if (!has_kernel(x)) return smooth.aten_backward(gradient, x, result);
  detail::as_stored(x, [&]<class T>(T) {
    const T *from = static_cast<const T*>(x.const_data_ptr()), *by = static_cast<const T*>(gradient.const_data_ptr());
    T* to = static_cast<T*>(result.mutable_data_ptr());
    if (!x.is_cpu()) {
      const GpuLaunch launch(x);
      return GpuLaunch::check(kernels::gpu::differentiate(smooth.curve, from, by, x.numel(), to, launch.stream()));
    }
    at::parallel_for(0, x.numel(), kNumbersPerThread, [&](int64_t begin, int64_t end) {
      kernels::differentiate(smooth.curve, from + begin, by + begin, end - begin, to + begin);
    });
  });
  return result;
}

/// Keeps x alone. A node of its own and no torch::autograd::Function: the engine gives a node its gradients to keep, so
/// that their reference counts tell whether anybody else holds them.
class SmoothBackward final : public torch::autograd::Node {
 public:
  SmoothBackward(const Smooth& smooth, bool fused, const Tensor& x) : smooth_(smooth), fused_(fused), x_(x, false) {}

  variable_list apply(variable_list&& gradients) override {
    Tensor gradient = std::move(gradients[0]);
    if (!gradient.defined()) return {Tensor()};
    const Tensor x = x_.unpack();
    if (!fused_ || at::GradMode::is_enabled()) return {gradient * smooth_.slope(x)};
    return {fused_gradient(smooth_, std::move(gradient), x)};
  }

  void release_variables() override { x_.reset_data(); }
  std::string name() const override { return "SmoothActivation"; }

 private:
  const Smooth& smooth_;
  bool fused_;
  torch::autograd::SavedVariable x_;
};

template <const Smooth& smooth, bool fused>
Tensor merged(const Tensor& x) {
  TORCH_CHECK_NOT_IMPLEMENTED(!torch::autograd::isFwGradDefined(x), "activation: has no derivative in forward mode");
  Tensor y;
  {
    const at::NoGradGuard no_grad;
    y = fused ? fused_value(smooth, x) : smooth.value(x);
  }
  if (!torch::autograd::compute_requires_grad(x)) return y;
  const auto node = std::make_shared<SmoothBackward>(smooth, fused, x);
  node->set_next_edges(torch::autograd::collect_next_edges(x));
  torch::autograd::set_history(y, node);
  return y;
}

template <Tensor (*apply)(const Tensor& x)>
constexpr Activation always_new(std::string_view name) {
  return {name, apply, apply};
}

Tensor aten_silu(const Tensor& x) { return at::silu(x); }

constexpr std::array kActivations = {
    Activation{"relu", [](const Tensor& x) { return at::relu(x); },
               [](const Tensor& x) {
                 Tensor over = x;
                 return over.relu_();
               },
               /*is_rectifier=*/true},
    Activation{"leaky-relu", [](const Tensor& x) { return at::leaky_relu(x, kLeakySlope); },
               [](const Tensor& x) {
                 Tensor over = x;
                 return at::leaky_relu_(over, kLeakySlope);
               }},
    Activation{"elu", [](const Tensor& x) { return at::elu(x); },
               [](const Tensor& x) {
                 Tensor over = x;
                 return at::elu_(over);
               }},
    always_new<aten_silu>("silu"),
    always_new<kSwish.value>("swish-naive"),
    always_new<merged<kSwish, false>>("swish-merged"),
    always_new<merged<kSwish, true>>("swish-fused"),
    always_new<kMish.value>("mish-naive"),
    always_new<merged<kMish, false>>("mish-merged"),
    always_new<merged<kMish, true>>("mish-fused"),
    always_new<kGelu.value>("gelu-naive"),
    always_new<merged<kGelu, false>>("gelu-merged"),
    always_new<merged<kGelu, true>>("gelu-fused"),
};

}  // namespace

const std::vector<std::string_view>& activation_names() {
  static const auto names = [] {
    std::vector<std::string_view> all;
    for (const auto& activation : kActivations) all.push_back(activation.name);
    return all;
  }();
  return names;
}

const Activation& activation_of(std::string_view name) {
  const auto found = std::ranges::find(kActivations, name, &Activation::name);
  if (found != kActivations.end()) return *found;
  const auto& names = activation_names();
  throw SettingsError("activation is " + quote(name) + ", wanted " + one_of({names.begin(), names.end()}),
                      did_you_mean(nearest(name, names)));
}

Tensor swish_gradient(Tensor gradient, const Tensor& x) { return fused_gradient(kSwish, std::move(gradient), x); }

}  // namespace tandem::memory
