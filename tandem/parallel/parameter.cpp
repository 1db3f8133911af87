#include "tandem/parallel/parameter.h"

#include <ATen/ATen.h>

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
