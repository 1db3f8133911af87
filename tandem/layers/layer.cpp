#include "tandem/layers/layer.h"

namespace tandem::layers {

void Layer::to(at::ScalarType type, bool non_blocking) {
  std::vector<std::pair<Tensor, Tensor>> whole;  // a buffer, and its values
  for (const auto& buffer : buffers(/*recurse=*/false)) {
    if (!buffer.is_floating_point()) whole.emplace_back(buffer, buffer.variable_data());
  }
  Module::to(type, non_blocking);
  for (auto& [buffer, values] : whole) buffer.set_data(values);
}

void Layer::to(at::Device device, at::ScalarType type, bool non_blocking) {
  to(device, non_blocking);
  to(type, non_blocking);
}

void initialize(torch::nn::Module& model, uint64_t seed) {
  for (const auto& entry : model.named_modules("", /*include_self=*/false)) {
    if (auto* layer = dynamic_cast<Layer*>(entry.value().get())) layer->initialize(seed, entry.key());
  }
}

}  // namespace tandem::layers
