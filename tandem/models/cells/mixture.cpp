#include "tandem/models/cells/mixture.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "tandem/models/genotype.h"

namespace tandem::models {

Mixture::Mixture(const std::vector<std::string_view>& operations, const CellLayerOptions& layers)
    : torch::nn::Module("MixedOp") {
  const auto list = register_module("_ops", std::make_shared<torch::nn::Module>("ModuleList"));
  for (const auto& name : operations) {
    operations_.push_back(list->register_module(std::to_string(operations_.size()), make_operation(name, layers)));
    is_zero_.push_back(name == kNoOperation);
  }
}

Tensor Mixture::add_operations(Tensor sum, const CellValue& x, const std::vector<Tensor>& weights) const {
  for (size_t i = 0; i < operations_.size(); ++i) {
    if (!is_zero_[i]) sum = added(sum, operations_[i]->scaled(x, weights[i]));
  }
  return sum;
}

Tensor added(const Tensor& sum, Tensor value) { return sum.defined() ? sum + value : std::move(value); }

}  // namespace tandem::models
