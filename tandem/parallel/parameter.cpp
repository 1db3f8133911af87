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

}  // namespace tandem::parallel
