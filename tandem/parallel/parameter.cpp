#include "tandem/parallel/parameter.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <unordered_map>
#include <unordered_set>

namespace tandem::parallel {

Parameter::Parameter(std::string of_name, Tensor of_tensor, Placement of_placement)
    : name(std::move(of_name)), tensor(std::move(of_tensor)), placement(std::move(of_placement)) {
  check_placement("parameter " + name, placement, tensor.sizes());
}

Parameter Parameter::replicated(std::string name, Tensor tensor) {
  return {std::move(name), std::move(tensor), Placement()};
}

Parameter Parameter::split(std::string name, Tensor tensor, const Split& split) {
  return {std::move(name), std::move(tensor), Placement{.splits = {split}}};
}

Parameter Parameter::placed(std::string name, Tensor tensor, Placement placement) {
  return {std::move(name), std::move(tensor), std::move(placement)};
}

Parameter Parameter::beside(std::string of_name, Tensor of_tensor) const {
  return {std::move(of_name), std::move(of_tensor), placement};
}

Parameter Parameter::whole_beside(std::string of_name, Tensor of_tensor) const {
  return {std::move(of_name), std::move(of_tensor), placement.of_whole()};
}

std::vector<Parameter> parameters_of(const torch::nn::Module& module) {
  std::vector<Parameter> all;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    all.push_back(Parameter::replicated(item.key(), item.value()));
  }
  return all;
}

void check_each_once(std::string_view who, const std::vector<Parameter>& parameters) {
  std::unordered_map<const c10::TensorImpl*, std::string_view> seen;
  for (const auto& parameter : parameters) {
    const auto [other, is_new] = seen.emplace(parameter.tensor.unsafeGetTensorImpl(), parameter.name);
    TORCH_CHECK_VALUE(
        is_new, who, ": ", other->second, " and ", parameter.name,
        " are one tensor, wanted each tensor once: list it under its first name, as parameters_of() does");
  }
}

std::vector<Parameter> trained_of(const std::vector<Parameter>& parameters) {
  std::vector<Parameter> trained;
  for (const auto& parameter : parameters) {
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  }
  return trained;
}

std::vector<Tensor> tensors_of(const std::vector<Parameter>& parameters) {
  std::vector<Tensor> tensors;
  for (const auto& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

std::vector<std::string> names_of(const std::vector<Parameter>& parameters) {
  std::vector<std::string> names;
  for (const auto& parameter : parameters) names.push_back(parameter.name);
  return names;
}

}  // namespace tandem::parallel
