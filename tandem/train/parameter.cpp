#include "tandem/train/parameter.h"

#include <torch/nn/module.h>

#include <unordered_set>

#include "tandem/base/context.h"

namespace tandem::train {

std::vector<Buffer> buffers_of(const torch::nn::Module& module) {
  std::vector<Buffer> all;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_buffers()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) all.push_back({item.key(), item.value()});
  }
  return all;
}

std::vector<Tensor> tensors_of(const std::vector<Buffer>& buffers) {
  std::vector<Tensor> tensors;
  for (const auto& buffer : buffers) tensors.push_back(buffer.tensor);
  return tensors;
}

std::vector<Tensor> copies_of(const std::vector<Buffer>& buffers) {
  const CategoryScope scope(Category::buffers);
  std::vector<Tensor> copies;
  for (const auto& buffer : buffers) copies.push_back(buffer.tensor.clone());
  return copies;
}

}  // namespace tandem::train
