#include "tandem/layers/detail/product.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tandem/memory/weight_work.h"

namespace tandem::layers::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A product whose weights' gradients are left. They are no inputs of its node: nothing must come to them when that
/// runs.
struct Product : torch::CustomClassHolder {
  Product(Tensor of_weight, Tensor of_bias) : weight(std::move(of_weight)), bias(std::move(of_bias)) {}

  virtual Tensor forward(const Tensor& x) const = 0;
  virtual Tensor input_gradient(const Tensor& x, const Tensor& gradient) const = 0;
  virtual std::vector<Tensor> weight_gradients(const Tensor& x, const Tensor& gradient) const = 0;

  Tensor weight, bias;
  std::shared_ptr<memory::WeightWork> work = memory::weight_work();
};

/// `anchor` requires a gradient, so that the result does where x does not.
struct ProductNode : torch::autograd::Function<ProductNode> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& anchor,
                        const c10::intrusive_ptr<Product>& product) {
    context->saved_data["product"] = c10::IValue::make_capsule(product);
    context->save_for_backward({x, product->weight});
    return product->forward(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto x = saved[0].detach(), gradient = gradients[0];
    const auto capsule = context->saved_data["product"].toCapsule();
    const auto product = c10::static_intrusive_pointer_cast<Product>(capsule);
    if (!gradient.defined()) return {{}, {}, {}};
    product->work->leave({product->weight, product->bias}, {x, gradient},
                         [product, x, gradient] { return product->weight_gradients(x, gradient); });
    if (!context->needs_input_grad(0)) return {{}, {}, {}};
    return {product->input_gradient(x, gradient), {}, {}};
  }
};

Tensor product_with(const Tensor& x, const c10::intrusive_ptr<Product>& product) {
  const auto anchor = at::empty({0}, x.options().dtype(at::kFloat)).requires_grad_();
  return ProductNode::apply(x, anchor, product);
}

bool is_left(const Tensor& weight) {
  return at::GradMode::is_enabled() && weight.requires_grad() && memory::weight_work() != nullptr;
}

/// [..., n] as [rows, n].
Tensor rows_of(const Tensor& x) {
  return x.reshape({c10::multiply_integers(x.sizes().slice(0, x.dim() - 1)), x.size(-1)});
}

struct LinearProduct final : Product {
  using Product::Product;

  Tensor forward(const Tensor& x) const override { return at::linear(x, weight, bias); }
  Tensor input_gradient(const Tensor&, const Tensor& gradient) const override { return gradient.matmul(weight); }
  std::vector<Tensor> weight_gradients(const Tensor& x, const Tensor& gradient) const override {
    const auto rows = rows_of(gradient);
    return {rows.t().mm(rows_of(x)), bias.defined() ? rows.sum(0) : Tensor()};
  }
};

struct ConvolutionProduct final : Product {
  ConvolutionProduct(Tensor of_weight, Tensor of_bias, const ConvolutionForm& of_form)
      : Product(std::move(of_weight), std::move(of_bias)), form(of_form) {}

  Tensor forward(const Tensor& x) const override {
    return at::conv2d(x, weight, bias, form.stride, form.padding, form.dilation, form.groups);
  }
  Tensor input_gradient(const Tensor& x, const Tensor& gradient) const override {
    return std::get<0>(backward(x, gradient, {true, false, false}));
  }
  std::vector<Tensor> weight_gradients(const Tensor& x, const Tensor& gradient) const override {
    const auto [_, by_weight, by_bias] = backward(x, gradient, {false, true, bias.defined()});
    return {by_weight, by_bias};
  }
  std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& x, const Tensor& gradient, std::array<bool, 3> mask) const {
    const auto sizes = bias.defined() ? at::OptionalIntArrayRef(bias.sizes()) : std::nullopt;
    return at::convolution_backward(gradient, x, weight, sizes, form.stride, form.padding, form.dilation,
                                    /*transposed=*/false, /*output_padding=*/{0, 0}, form.groups, mask);
  }

  ConvolutionForm form;
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!is_left(weight)) return at::linear(x, weight, bias);
  return product_with(x, c10::intrusive_ptr<Product>(c10::make_intrusive<LinearProduct>(weight, bias)));
}

Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionForm& form) {
  if (!is_left(weight)) {
    return at::conv2d(x, weight, bias, form.stride, form.padding, form.dilation, form.groups);
  }
  return product_with(x, c10::intrusive_ptr<Product>(c10::make_intrusive<ConvolutionProduct>(weight, bias, form)));
}

}  // namespace tandem::layers::detail
