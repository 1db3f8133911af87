#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <array>
#include <string>
#include <string_view>

#include "tandem/memory/abn_passes.h"
#include "tandem/memory/inplace_abn.h"
#include "tandem/operators/detail/eager.h"

namespace tandem::operators {
namespace {

using kernels::Invertible;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Three = std::tuple<Tensor, Tensor, Tensor>;

constexpr std::array<std::pair<std::string_view, Invertible>, 4> kActivations = {
    {{"leaky_relu", Invertible::leaky_relu},
     {"elu", Invertible::elu},
     {"swish", Invertible::swish},
     {"identity", Invertible::identity}}};

Invertible activation_of(std::string_view name) {
  for (const auto& [own, activation] : kActivations) {
    if (own == name) return activation;
  }
  TORCH_CHECK_VALUE(false, "abn: activation is '", name, "', wanted leaky_relu, elu, swish or identity");
}

at::MemoryFormat format_of(const Tensor& x) {
  return x.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

/// The type of weight, bias and statistics beside x of this type.
at::ScalarType parameter_type(at::ScalarType x) { return x == at::kBFloat16 ? at::kFloat : x; }

void check(const Tensor& x, const memory::AbnState& state, bool training) {
  const auto type = x.scalar_type();
  TORCH_CHECK_TYPE(type == at::kFloat || type == at::kDouble || type == at::kBFloat16, "abn: x is ", type,
                   ", wanted float32, float64 or bfloat16");
  TORCH_CHECK_VALUE((x.dim() == 2 || x.dim() == 4) && x.numel() > 0, "abn: x is ", x.sizes(),
                    ", wanted [N, C] or [N, C, H, W] with numbers in it");
  const std::array<std::pair<const char*, const Tensor&>, 4> all = {{{"weight", state.weight},
                                                                     {"bias", state.bias},
                                                                     {"running_mean", state.running_mean},
                                                                     {"running_var", state.running_var}}};
  for (const auto& [name, values] : all) {
    TORCH_CHECK_VALUE(values.dim() == 1 && values.size(0) == x.size(1), "abn: ", name, " is ", values.sizes(),
                      ", wanted [", x.size(1), "], a number a channel of x");
    TORCH_CHECK_TYPE(values.scalar_type() == parameter_type(type), "abn: ", name, " is ", values.scalar_type(),
                     ", wanted ", parameter_type(type), " for x of ", type);
    TORCH_CHECK_VALUE(values.is_contiguous(), "abn: ", name, " is not contiguous: call .contiguous()");
  }
  TORCH_CHECK_VALUE(!training || x.numel() > x.size(1), "abn: x is ", x.sizes(),
                    ", wanted 2 or more numbers a channel in training");
}

void note_moved(const memory::AbnState& state, bool training) {
  if (!training) return;
  torch::autograd::impl::bump_version(state.running_mean);
  torch::autograd::impl::bump_version(state.running_var);
}

Three abn_forward_values(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                         const Tensor& running_var, std::string_view activation, bool training, double momentum,
                         double epsilon) {
  const memory::AbnState state{weight, bias, running_mean, running_var, momentum, epsilon};
  const auto kind = activation_of(activation);
  check(x, state, training);
  const at::NoGradGuard no_grad;
  const auto z = x.clone(format_of(x));
  const auto kept = memory::abn_forward(z, kind, state, training);
  note_moved(state, training);
  return {z, kept.numbers, kept.sides.defined() ? kept.sides : at::empty({0}, at::kByte)};
}

Tensor abn_values(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, std::string_view activation, bool training, double momentum,
                  double epsilon) {
  return std::get<0>(
      abn_forward_values(x, weight, bias, running_mean, running_var, activation, training, momentum, epsilon));
}

Three abn_backward_values(const Tensor& gradient, const Tensor& z, const Tensor& numbers, const Tensor& sides,
                          std::string_view activation, bool training) {
  const at::NoGradGuard no_grad;
  const memory::AbnKept kept{activation_of(activation), memory::AbnForm::one, training, numbers,
                             sides.numel() > 0 ? sides : Tensor()};
  const auto made = memory::abn_backward(kept, gradient, z.contiguous(format_of(z)));
  return {made.input, made.weight, made.bias};
}

Three abn_forward_meta(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, std::string_view activation, bool training, double momentum,
                       double epsilon) {
  TORCH_CHECK_VALUE(x.dim() == 2 || x.dim() == 4, "abn: x has ", x.dim(), " dims, wanted [N, C] or [N, C, H, W]");
  auto rows = x.sym_size(0);
  for (int64_t dim = 2; dim < x.dim(); ++dim) rows = rows * x.sym_size(dim);
  const auto channels = x.sym_size(1);
  const auto bytes = x.options().dtype(at::kByte);
  return {at::empty_like(x, x.options(), format_of(x)), at::empty_symint({3, channels}, x.options().dtype(at::kDouble)),
          activation_of(activation) == Invertible::swish ? at::empty_symint({rows, (channels + 15) / 16 * 2}, bytes)
                                                         : at::empty({0}, bytes)};
}

Tensor abn_meta(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                const Tensor& running_var, std::string_view activation, bool training, double momentum,
                double epsilon) {
  return std::get<0>(
      abn_forward_meta(x, weight, bias, running_mean, running_var, activation, training, momentum, epsilon));
}

Three abn_backward_meta(const Tensor& gradient, const Tensor& z, const Tensor& numbers, const Tensor& sides,
                        std::string_view activation, bool training) {
  const auto channels = z.sym_size(1);
  const auto parameters = z.options().dtype(parameter_type(z.scalar_type()));
  return {at::empty_like(z, z.options(), format_of(z)), at::empty_symint({channels}, parameters),
          at::empty_symint({channels}, parameters)};
}

Tensor dispatched_abn(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                      const Tensor& running_var, std::string_view activation, bool training, double momentum,
                      double epsilon) {
  static const auto abn =
      c10::Dispatcher::singleton().findSchemaOrThrow("tandem::abn", "").typed<decltype(abn_values)>();
  return abn.call(x, weight, bias, running_mean, running_var, activation, training, momentum, epsilon);
}

struct TracedAbn : torch::autograd::Function<TracedAbn> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const Tensor& running_mean, const Tensor& running_var, const std::string& activation,
                        bool training, double momentum, double epsilon) {
    static const auto abn_forward =
        c10::Dispatcher::singleton().findSchemaOrThrow("tandem::abn_forward", "").typed<decltype(abn_forward_values)>();
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [z, numbers, sides] =
        abn_forward.call(x, weight, bias, running_mean, running_var, activation, training, momentum, epsilon);
    context->save_for_backward({z, numbers, sides});
    context->saved_data["activation"] = activation;
    context->saved_data["training"] = training;
    return z;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto abn_backward = c10::Dispatcher::singleton()
                                         .findSchemaOrThrow("tandem::abn_backward", "")
                                         .typed<decltype(abn_backward_values)>();
    const auto saved = context->get_saved_variables();
    variable_list made(9);
    std::tie(made[0], made[1], made[2]) =
        abn_backward.call(gradients[0], saved[0], saved[1], saved[2], context->saved_data["activation"].toStringRef(),
                          context->saved_data["training"].toBool());
    return made;
  }
};

Tensor abn_autograd(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                    const Tensor& running_var, std::string_view activation, bool training, double momentum,
                    double epsilon) {
  detail::refuse_tangents("abn", {x, weight, bias});
  TORCH_CHECK_VALUE(!running_mean.requires_grad() && !running_var.requires_grad(),
                    "abn: running_mean or running_var requires a gradient, wanted buffers");
  if (!torch::autograd::compute_requires_grad(x, weight, bias)) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return dispatched_abn(x, weight, bias, running_mean, running_var, activation, training, momentum, epsilon);
  }
  if (!detail::runs_eagerly({x, weight, bias, running_mean, running_var})) {
    return TracedAbn::apply(x, weight, bias, running_mean, running_var, std::string(activation), training, momentum,
                            epsilon);
  }
  const memory::AbnState state{weight, bias, running_mean, running_var, momentum, epsilon};
  check(x, state, training);
  const auto z = memory::inplace_abn(x.clone(format_of(x)), activation_of(activation), state, training);
  note_moved(state, training);
  return z;
}

/// As batch_norm under autocast: x of bfloat16 stays, and so does the result. The running statistics are written, so
/// they are never cast.
Tensor abn_autocast(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                    const Tensor& running_var, std::string_view activation, bool training, double momentum,
                    double epsilon) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  const auto widened = [](const Tensor& values) { return at::autocast::cached_cast(at::kFloat, values, c10::kCPU); };
  return dispatched_abn(x.scalar_type() == at::kHalf ? widened(x) : x, widened(weight), widened(bias), running_mean,
                        running_var, activation, training, momentum, epsilon);
}

}  // namespace

TORCH_LIBRARY_IMPL(tandem, AutocastCPU, library) { library.impl("abn", abn_autocast); }

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("abn", abn_values);
  library.impl("abn_forward", abn_forward_values);
  library.impl("abn_backward", abn_backward_values);
}

TORCH_LIBRARY_IMPL(tandem, Meta, library) {
  library.impl("abn", abn_meta);
  library.impl("abn_forward", abn_forward_meta);
  library.impl("abn_backward", abn_backward_meta);
}

TORCH_LIBRARY_IMPL(tandem, Autograd, library) {
  library.impl("abn", abn_autograd);
  library.impl("abn_forward", torch::autograd::autogradNotImplementedFallback());
  library.impl("abn_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace tandem::operators
