#include "tandem/parallel/grad_manager.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>

#include <algorithm>

namespace tandem::parallel {
namespace {

/// Autograd may hand out one tensor several times, one that its caller holds, or an expanded one.
Tensor as_own(Tensor gradient, const Tensor& tensor) {
  if (gradient.layout() != at::kStrided) return gradient.use_count() == 1 ? gradient : gradient.clone();
  const bool is_own =
      gradient.use_count() == 1 && gradient.storage().use_count() == 1 && gradient.is_non_overlapping_and_dense();
  return is_own ? gradient : torch::autograd::utils::clone_obey_contract(gradient, tensor);
}

}  // namespace

size_t GradManager::place_of(const Tensor& tensor) const {
  const auto found = std::ranges::find_if(attached_, [&](const auto& one) { return one.tensor.is_same(tensor); });
  return static_cast<size_t>(found - attached_.begin());
}

Tensor GradManager::attach(Tensor tensor, Callback callback) {
  TORCH_CHECK_TYPE(tensor.is_floating_point() || tensor.is_complex(), "gradient manager: a tensor is ",
                   tensor.scalar_type(), ", wanted floating or complex values");
  const auto place = place_of(tensor);
  if (place == attached_.size()) {
    if (!tensor.requires_grad()) tensor.requires_grad_();
    attached_.push_back({next_++, tensor});
  }
  if (callback) attached_[place].callbacks.push_back(std::move(callback));
  return tensor;
}

void GradManager::backward(const std::vector<Tensor>& ys, const std::vector<Tensor>& dys) {
  TORCH_CHECK_VALUE(dys.empty() || dys.size() == ys.size(), "gradient manager: there are ", dys.size(),
                    " gradients for ", ys.size(), " outputs, wanted one each or none");
  for (const auto& y : ys) {
    TORCH_CHECK_VALUE(y.requires_grad(),
                      "gradient manager: an output requires no gradient, wanted one that depends on ",
                      "an attached tensor: attach before the tensor is used");
  }
  std::vector<Tensor> tensors, gradients(attached_.size());
  for (const auto& one : attached_) tensors.push_back(one.tensor);
  if (!ys.empty() && !tensors.empty()) {
    gradients = torch::autograd::grad(ys, tensors, dys, /*retain_graph=*/false, /*create_graph=*/false,
                                      /*allow_unused=*/true);
  }
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < attached_.size(); ++i) attached_[i].add(std::move(gradients[i]));
}

void GradManager::Attached::add(Tensor gradient_of_backward) {
  if (!gradient_of_backward.defined() && callbacks.empty()) return;
  auto own = gradient_of_backward.defined() ? as_own(std::move(gradient_of_backward), tensor) : at::zeros_like(tensor);
  for (const auto& callback : callbacks) {
    if (auto other = callback(tensor, own); other.defined()) own = std::move(other);
  }
  auto& sum = tensor.is_leaf() ? tensor.mutable_grad() : gradient;
  sum = sum.defined() ? sum + own : own;
}

Tensor GradManager::grad(const Tensor& attached) const {
  const auto place = place_of(attached);
  TORCH_CHECK_VALUE(place < attached_.size(),
                    "gradient manager: the tensor is not attached, wanted attach() before backward");
  const auto& found = attached_[place];
  return found.tensor.is_leaf() ? found.tensor.grad() : found.gradient;
}

void GradManager::forget_from(uint64_t number) {
  std::erase_if(attached_, [&](const Attached& one) { return one.number >= number; });
}

void GradManager::release() {
  std::erase_if(attached_, [](const Attached& one) { return !one.tensor.is_leaf(); });
}

}  // namespace tandem::parallel
