#include "tandem/parallel/detail/gradient_watch.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace tandem::parallel::detail {

using torch::autograd::variable_list;

GradientWatch::GradientWatch(const Tensor& parameter, std::function<void()> call)
    : node_(torch::autograd::impl::grad_accumulator(parameter)) {
  auto hook = [call = std::move(call)](const variable_list& outputs, const variable_list&) {
    call();
    return outputs;
  };
  key_ = node_->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(hook));
}

GradientWatch::~GradientWatch() {
  if (node_) node_->del_post_hook(key_);
}

}  // namespace tandem::parallel::detail
