#include "tandem/parallel/detail/gradient_tags.h"

#include <ATen/ATen.h>

#include "tandem/memory/meter.h"

namespace tandem::parallel::detail {

GradientTags::GradientTags(const std::vector<Tensor>& parameters) {
  for (const auto& parameter : parameters) {
    if (!parameter.requires_grad()) continue;
    parameters_.push_back(parameter);
    hooks_.push_back(
        parameter.register_hook([](const Tensor& gradient) { memory::tag(gradient, Category::gradients); }));
  }
}

GradientTags::~GradientTags() {
  for (size_t i = 0; i < hooks_.size(); ++i) parameters_[i].remove_hook(hooks_[i]);
}

}  // namespace tandem::parallel::detail
