#include "tandem/layers/placed.h"

#include <ATen/ATen.h>

#include <unordered_map>
#include <unordered_set>

#include "tandem/layers/layer.h"

namespace tandem::layers {
namespace {

using parallel::Parameter;

struct Place {
  std::string whole;
  parallel::Split split;
};

/// By the names of the parts in the model.
std::unordered_map<std::string, Place> parts_of(const torch::nn::Module& model) {
  std::unordered_map<std::string, Place> places;
  const auto add = [&](const torch::nn::Module& module, const std::string& prefix) {
    const auto* layer = dynamic_cast<const Layer*>(&module);
    if (layer == nullptr) return;
    for (const auto& [parameter, whole, split] : layer->parts()) places[prefix + parameter] = {prefix + whole, split};
  };
  add(model, "");
  for (const auto& module : model.named_modules("", /*include_self=*/false)) add(*module.value(), module.key() + ".");
  return places;
}

template <class Tensors>
std::vector<Parameter> placed(const Tensors& tensors, const torch::nn::Module& model, const parallel::Mesh& mesh,
                              parallel::Axis axis) {
  const auto places = parts_of(model);
  std::vector<Parameter> all;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& entry : tensors) {
    if (!seen.insert(entry.value().unsafeGetTensorImpl()).second) continue;
    const auto place = places.find(entry.key());
    if (place == places.end() || mesh.size(axis) == 1) {
      all.push_back(Parameter::replicated(entry.key(), entry.value()));
    } else {
      const auto& [whole, split] = place->second;
      all.push_back(Parameter::placed(whole, entry.value(), mesh.place(split, axis)));
    }
  }
  return all;
}

}  // namespace

std::vector<Parameter> parameters_of(const torch::nn::Module& model, const parallel::Mesh& mesh, parallel::Axis axis) {
  return placed(model.named_parameters(), model, mesh, axis);
}

std::vector<Parameter> buffers_of(const torch::nn::Module& model, const parallel::Mesh& mesh, parallel::Axis axis) {
  return placed(model.named_buffers(), model, mesh, axis);
}

}  // namespace tandem::layers
