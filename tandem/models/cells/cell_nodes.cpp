#include "tandem/models/cells/cell_nodes.h"

#include <ATen/ATen.h>

#include "tandem/models/backbone.h"

namespace tandem::models {

std::vector<bool> values_read(const CellGenotype& cell, int64_t inputs) {
  std::vector<bool> read(inputs + cell.nodes.size());
  for (const auto value : cell.concat) read[value] = true;
  for (auto value = std::ssize(read) - 1; value >= inputs; --value) {
    if (!read[value]) continue;
    for (const auto& edge : cell.nodes[value - inputs])
      read[edge.input] = read[edge.input] || reads_input(edge.operation);
  }
  return read;
}

CellNodes::CellNodes(const CellGenotype& genotype, int64_t inputs, bool halves, CellLayerOptions options,
                     double drop_path, const std::string& name)
    : torch::nn::Module("ModuleList"),
      genotype_(genotype),
      drop_path_(register_module("drop_path", std::make_shared<DropPath>(drop_path, name + ".drop_path"))) {
  const auto read = values_read(genotype, inputs);
  for (size_t node = 0; node < genotype_.nodes.size(); ++node) {
    for (const auto& [operation, input] : genotype_.nodes[node]) {
      options.stride = halves && input < inputs ? 2 : 1;
      operations_.push_back(register_module(std::to_string(operations_.size()), make_operation(operation, options)));
      if (!read[inputs + node]) freeze(*operations_.back());
    }
  }
}

Tensor CellNodes::forward(std::vector<CellValue> values) const {
  const auto& first = values[0].values();
  const auto masks = drop_path_->masks(std::ssize(operations_), first.size(0), first.options());
  size_t at = 0;
  for (const auto& node : genotype_.nodes) {
    Tensor sum;
    for (const auto& edge : node) {
      const auto value = apply(at++, values[edge.input], masks);
      sum = sum.defined() ? sum + value : value;
    }
    values.emplace_back(std::move(sum));
  }
  std::vector<Tensor> outputs;
  for (const auto value : genotype_.concat) outputs.push_back(values[value].values());
  return outputs.size() == 1 ? outputs[0] : at::cat(outputs, 1);
}

/// What is the input itself is never dropped.
Tensor CellNodes::apply(size_t at, const CellValue& x, const Tensor& masks) const {
  const auto value = operations_[at]->forward(x);
  if (!masks.defined() || operations_[at]->is_identity()) return value;
  return value * masks[static_cast<int64_t>(at)];
}

}  // namespace tandem::models
