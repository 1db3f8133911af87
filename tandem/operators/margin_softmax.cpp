#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include "tandem/classifier/scoring.h"
#include "tandem/classifier/softmax_loss.h"
#include "tandem/comm/process_group.h"
#include "tandem/operators/detail/eager.h"

namespace tandem::operators {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Both = std::tuple<Tensor, Tensor>;

void check(const Tensor& features, const Tensor& weight) {
  const auto type = features.scalar_type();
  TORCH_CHECK_TYPE(type == at::kFloat || type == at::kDouble, "margin_softmax: features are ", type,
                   ", wanted float32 or float64");
  TORCH_CHECK_VALUE(weight.dim() == 2 && weight.size(0) > 0, "margin_softmax: weight is ", weight.sizes(),
                    ", wanted [C, D] with a row a class");
}

/// The loss of one rank that holds all classes. Records itself.
Tensor loss_of(const Tensor& features, const Tensor& weight, const Tensor& targets, double scale, double factor,
               double angle, double cosine) {
  check(features, weight);
  const auto alone = comm::make_single_group();
  return classifier::sharded_softmax_loss(features.contiguous(), weight.contiguous(), targets, 0, weight.size(0),
                                          classifier::combined_margin(scale, factor, angle, cosine), *alone);
}

Tensor loss_value(const Tensor& features, const Tensor& weight, const Tensor& targets, double scale, double factor,
                  double angle, double cosine) {
  const at::NoGradGuard no_grad;
  return loss_of(features, weight, targets, scale, factor, angle, cosine);
}

Both loss_gradients(const Tensor& gradient, const Tensor& features, const Tensor& weight, const Tensor& targets,
                    double scale, double factor, double angle, double cosine) {
  const at::AutoGradMode grad(true);
  const auto x = features.contiguous().detach().requires_grad_(), w = weight.contiguous().detach().requires_grad_();
  const auto loss = loss_of(x, w, targets, scale, factor, angle, cosine);
  const auto made = torch::autograd::grad({loss}, {x, w}, {gradient});
  return {made[0], made[1]};
}

Tensor dispatched_loss(const Tensor& features, const Tensor& weight, const Tensor& targets, double scale, double factor,
                       double angle, double cosine) {
  static const auto loss =
      c10::Dispatcher::singleton().findSchemaOrThrow("tandem::margin_softmax", "").typed<decltype(loss_value)>();
  return loss.call(features, weight, targets, scale, factor, angle, cosine);
}

Tensor loss_below_autograd(const Tensor& features, const Tensor& weight, const Tensor& targets, double scale,
                           double factor, double angle, double cosine) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return dispatched_loss(features, weight, targets, scale, factor, angle, cosine);
}

/// As cross_entropy under autocast: in float32.
Tensor loss_autocast(const Tensor& features, const Tensor& weight, const Tensor& targets, double scale, double factor,
                     double angle, double cosine) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  const auto widened = [](const Tensor& values) { return at::autocast::cached_cast(at::kFloat, values, c10::kCPU); };
  return dispatched_loss(widened(features), widened(weight), targets, scale, factor, angle, cosine);
}

struct TracedLoss : torch::autograd::Function<TracedLoss> {
  static Tensor forward(AutogradContext* context, const Tensor& features, const Tensor& weight, const Tensor& targets,
                        double scale, double factor, double angle, double cosine) {
    context->save_for_backward({features, weight, targets});
    context->saved_data["margin"] = std::vector<double>{scale, factor, angle, cosine};
    return loss_below_autograd(features, weight, targets, scale, factor, angle, cosine);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto loss_backward = c10::Dispatcher::singleton()
                                          .findSchemaOrThrow("tandem::margin_softmax_backward", "")
                                          .typed<decltype(loss_gradients)>();
    const auto saved = context->get_saved_variables();
    const auto margin = context->saved_data["margin"].toDoubleVector();
    variable_list made(7);
    std::tie(made[0], made[1]) =
        loss_backward.call(gradients[0], saved[0], saved[1], saved[2], margin[0], margin[1], margin[2], margin[3]);
    return made;
  }
};

Tensor loss_autograd(const Tensor& features, const Tensor& weight, const Tensor& targets, double scale, double factor,
                     double angle, double cosine) {
  detail::refuse_tangents("margin_softmax", {features, weight});
  if (!torch::autograd::compute_requires_grad(features, weight)) {
    return loss_below_autograd(features, weight, targets, scale, factor, angle, cosine);
  }
  if (detail::runs_eagerly({features, weight, targets})) {
    return loss_of(features, weight, targets, scale, factor, angle, cosine);
  }
  return TracedLoss::apply(features, weight, targets, scale, factor, angle, cosine);
}

Tensor loss_meta(const Tensor& features, const Tensor& weight, const Tensor& targets, double scale, double factor,
                 double angle, double cosine) {
  return at::empty({}, features.options());
}

Both loss_gradients_meta(const Tensor& gradient, const Tensor& features, const Tensor& weight, const Tensor& targets,
                         double scale, double factor, double angle, double cosine) {
  const auto format = at::MemoryFormat::Contiguous;
  return {at::empty_like(features, features.options(), format), at::empty_like(weight, weight.options(), format)};
}

}  // namespace

TORCH_LIBRARY_IMPL(tandem, AutocastCPU, library) { library.impl("margin_softmax", loss_autocast); }

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("margin_softmax", loss_value);
  library.impl("margin_softmax_backward", loss_gradients);
}

TORCH_LIBRARY_IMPL(tandem, Meta, library) {
  library.impl("margin_softmax", loss_meta);
  library.impl("margin_softmax_backward", loss_gradients_meta);
}

TORCH_LIBRARY_IMPL(tandem, Autograd, library) {
  library.impl("margin_softmax", loss_autograd);
  library.impl("margin_softmax_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace tandem::operators
