#include "tandem/parallel/gradient_total.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"

namespace tandem::parallel {

GradientTotal::GradientTotal(const std::vector<Tensor>& of, comm::ProcessGroup& group, bool in_order) : group_(group) {
  TORCH_CHECK_VALUE(!of.empty(), "gradient total: there are no tensors");
  int64_t count = 0;
  for (const auto& tensor : of) {
    TORCH_CHECK_VALUE(tensor.scalar_type() == of[0].scalar_type() && tensor.device() == of[0].device(),
                      "gradient total: tensors of several types or devices, wanted one");
    count += tensor.numel();
  }
  const CategoryScope scope(Category::gradients);
  const auto options = of[0].options().requires_grad(false);
  flat_ = at::empty({count}, options);
  int64_t at = 0;
  for (const auto& tensor : of) {
    const auto place = flat_.narrow(0, at, tensor.numel());
    views_.push_back(tensor.is_non_overlapping_and_dense()
                         ? place.as_strided(tensor.sizes(), tensor.strides(), place.storage_offset())
                         : place.view(tensor.sizes()));
    at += tensor.numel();
  }
  if (in_order) ordered_.emplace(flat_, group_);
}

void GradientTotal::put(const std::vector<Tensor>& gradients) {
  TORCH_CHECK_VALUE(gradients.size() == views_.size(), "gradient total: ", gradients.size(), " gradients, wanted ",
                    views_.size());
  const bool adds = !is_empty_ && !ordered_;
  for (size_t i = 0; i < views_.size(); ++i) {
    if (gradients[i].defined() && adds) {
      views_[i].add_(gradients[i]);
    } else if (gradients[i].defined()) {
      views_[i].copy_(gradients[i]);
    } else if (!adds) {
      views_[i].zero_();
    }
  }
}

void GradientTotal::add(const std::vector<Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  put(gradients);
  if (ordered_) ordered_->add(flat_, /*is_first=*/is_empty_);
  is_empty_ = false;
}

void GradientTotal::end() {
  const at::NoGradGuard no_grad;
  if (is_empty_) add(std::vector<Tensor>(views_.size()));
  is_empty_ = true;
  const CategoryScope scope(Category::communication);
  if (ordered_) return ordered_->end(flat_);
  comm::all_reduce_(flat_, group_);
}

}  // namespace tandem::parallel
