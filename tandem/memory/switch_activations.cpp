#include "tandem/memory/switch_activations.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>

namespace tandem::memory {
namespace {

template <class... Kinds>
bool is_one_of(torch::nn::Module& module) {
  return (... || (dynamic_cast<Kinds*>(&module) != nullptr));
}

/// Replaces a container's own activations.
int64_t replace_in(torch::nn::SequentialImpl& container, const Activation& activation) {
  using namespace torch::nn;
  int64_t count = 0, position = 0;
  for (auto& held : container) {
    const auto name = container.named_children()[position++].key();
    if (!is_one_of<ReLUImpl, SiLUImpl, MishImpl, GELUImpl>(*held.ptr())) continue;
    const auto module = std::make_shared<ActivationModule>(activation);
    module->train(held.ptr()->is_training());
    held = AnyModule(module);
    container.replace_module(name, module);
    ++count;
  }
  return count;
}

}  // namespace

int64_t switch_activations(torch::nn::Module& model, const Activation& activation) {
  int64_t count = 0;
  for (const auto& module : model.modules()) {
    if (auto* owner = dynamic_cast<HasActivation*>(module.get())) {
      owner->set_activation(activation);
      ++count;
    } else if (auto* container = dynamic_cast<torch::nn::SequentialImpl*>(module.get())) {
      count += replace_in(*container, activation);
    }
  }
  return count;
}

}  // namespace tandem::memory
