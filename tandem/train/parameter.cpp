#include "tandem/train/parameter.h"

#include <torch/nn/module.h>

#include <unordered_set>

#include "tandem/base/context.h"

namespace tandem::train {

std::vector<Parameter> buffers_of(const torch::nn::Module& module) {
  std::vector<Parameter> all;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_buffers()) {
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    all.push_back(Parameter::replicated(item.key(), item.value()));
  }
  return all;
}

std::vector<Tensor> copies_of(const std::vector<Parameter>& buffers) {
  const CategoryScope scope(Category::buffers);
  std::vector<Tensor> copies;
  for (const auto& buffer : buffers) copies.push_back(buffer.tensor.clone());
  return copies;
}

}  // namespace tandem::train
