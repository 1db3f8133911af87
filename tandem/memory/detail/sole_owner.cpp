#include "tandem/memory/detail/sole_owner.h"

#include <ATen/ATen.h>

namespace tandem::memory::detail {

bool is_sole_owner(const Tensor& tensor) {
  return !at::GradMode::is_enabled() && tensor.defined() && tensor.use_count() == 1 && tensor.weak_use_count() == 1 &&
         tensor.has_storage() && tensor.storage().use_count() == 1 && tensor.storage().resizable() &&
         tensor.is_non_overlapping_and_dense();
}

Tensor result_over(Tensor& gradient, const Tensor& like) {
  const bool fits = gradient.scalar_type() == like.scalar_type() && gradient.sizes() == like.sizes() &&
                    gradient.strides() == like.strides();
  if (!fits) {
    Tensor copy = at::empty_like(like);
    copy.copy_(gradient);
    gradient = std::move(copy);
  }
  return is_sole_owner(gradient) ? gradient : at::empty_like(like);
}

}  // namespace tandem::memory::detail
