#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include "tandem/memory/activation.h"
#include "tandem/operators/detail/eager.h"

namespace tandem::operators {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor swish_values(const Tensor& x) {
  const at::NoGradGuard no_grad;
  return memory::activation_of("swish-fused").apply(x);
}

Tensor swish_backward_values(const Tensor& gradient, const Tensor& x) {
  const at::NoGradGuard no_grad;
  return memory::swish_gradient(gradient, x);
}

Tensor swish_below_autograd(const Tensor& x) {
  static const auto swish =
      c10::Dispatcher::singleton().findSchemaOrThrow("tandem::swish", "").typed<Tensor(const Tensor&)>();
  const at::AutoDispatchBelowADInplaceOrView below;
  return swish.call(x);
}

struct TracedSwish : torch::autograd::Function<TracedSwish> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return swish_below_autograd(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto swish_backward = c10::Dispatcher::singleton()
                                           .findSchemaOrThrow("tandem::swish_backward", "")
                                           .typed<Tensor(const Tensor&, const Tensor&)>();
    const auto x = context->get_saved_variables()[0];
    if (!at::GradMode::is_enabled()) return {swish_backward.call(gradients[0], x)};
    const auto s = x.sigmoid();
    return {gradients[0] * (s * (1 + x * (1 - s)))};
  }
};

Tensor swish_autograd(const Tensor& x) {
  detail::refuse_tangents("swish", {x});
  if (!torch::autograd::compute_requires_grad(x)) return swish_below_autograd(x);
  return detail::runs_eagerly({x}) ? memory::activation_of("swish-fused").apply(x) : TracedSwish::apply(x);
}

Tensor swish_meta(const Tensor& x) { return at::empty_like(x); }

Tensor swish_backward_meta(const Tensor& gradient, const Tensor& x) { return at::empty_like(x); }

}  // namespace

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("swish", swish_values);
  library.impl("swish_backward", swish_backward_values);
}

TORCH_LIBRARY_IMPL(tandem, Meta, library) {
  library.impl("swish", swish_meta);
  library.impl("swish_backward", swish_backward_meta);
}

TORCH_LIBRARY_IMPL(tandem, Autograd, library) {
  library.impl("swish", swish_autograd);
  library.impl("swish_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace tandem::operators
