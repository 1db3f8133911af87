#include "tandem/train/parameter.h"

#include <torch/nn/module.h>
#include "tandem/base/context.h"

namespace tandem::train {

std::vector<Parameter> parameters_of(const torch::nn::Module& module) {
  std::vector<Parameter> all;
  for (const auto& item : module.named_parameters()) all.push_back(Parameter::replicated(item.key(), item.value()));
  return all;
}

std::vector<Buffer> buffers_of(const torch::nn::Module& module) {
  std::vector<Buffer> all;
  for (const auto& item : module.named_buffers()) all.push_back({item.key(), item.value()});
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
