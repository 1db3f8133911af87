#include "tandem/train/parameter.h"

#include <torch/nn/module.h>

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

}  // namespace tandem::train
