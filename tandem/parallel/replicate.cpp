#include "tandem/parallel/replicate.h"

#include <torch/nn/module.h>

namespace tandem::parallel {

std::vector<std::shared_ptr<torch::nn::Module>> replicate(const std::shared_ptr<torch::nn::Module>& module, int count) {
  TORCH_CHECK_VALUE(count >= 1, "replicate: count is ", count, ", wanted 1 or more");
  std::vector<std::shared_ptr<torch::nn::Module>> replicas = {module};
  while (static_cast<int>(replicas.size()) < count) {
    replicas.push_back(module->clone());
    refresh(*module, *replicas.back());
  }
  return replicas;
}

void refresh(const torch::nn::Module& module, torch::nn::Module& clone) {
  const at::NoGradGuard no_grad;
  const auto weights = module.parameters(), buffers = module.buffers();
  auto own_weights = clone.parameters(), own_buffers = clone.buffers();
  const auto modules = module.modules(), own_modules = clone.modules();
  TORCH_CHECK_VALUE(weights.size() == own_weights.size() && buffers.size() == own_buffers.size() &&
                        modules.size() == own_modules.size(),
                    "replicas: the module has ", weights.size(), " parameters, ", buffers.size(), " buffers and ",
                    modules.size(), " submodules, and a replica ", own_weights.size(), ", ", own_buffers.size(),
                    " and ", own_modules.size(), ", wanted the same: make the replicas anew after changing the module");
  for (size_t i = 0; i < weights.size(); ++i) {
    own_weights[i].set_data(weights[i].detach());
    own_weights[i].requires_grad_(weights[i].requires_grad());
  }
  for (size_t i = 0; i < buffers.size(); ++i) own_buffers[i].copy_(buffers[i]);
  for (size_t i = 0; i < modules.size(); ++i) own_modules[i]->train(modules[i]->is_training());
}

}  // namespace tandem::parallel
