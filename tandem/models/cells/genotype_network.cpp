#include "tandem/models/cells/genotype_network.h"

#include <ATen/ATen.h>

#include <array>

#include "tandem/models/network/dropout.h"
#include "tandem/models/network/layers.h"

namespace tandem::models {
namespace {

using memory::Flow;

// What a block passes on. The output before is missing after a stem whose output is both.
enum PassedOn : size_t { kOutput, kOutputBefore, kAuxiliary };

class Cell : public torch::nn::Module {
 public:
  Cell(const CellGenotype& genotype, bool halves, const CellInputs& inputs, CellLayerOptions options,
       const std::shared_ptr<DropPath>& drop_path)
      : torch::nn::Module("Cell"), genotype_(genotype), drop_path_(register_module("drop_path", drop_path)) {
    const auto add = [this](const char* name, std::shared_ptr<CellLayer> layer) {
      return register_module(name, layer);
    };
    inputs_ = {add("preprocess0", inputs.is_earlier_larger ? make_halving(inputs.earlier, options)
                                                           : make_projection(inputs.earlier, options)),
               add("preprocess1", make_projection(inputs.latest, options))};
    const auto list = register_module("_ops", std::make_shared<torch::nn::Module>("ModuleList"));
    for (const auto& node : genotype_.nodes) {
      for (const auto& [operation, input] : node) {
        options.stride = halves && input < kCellInputs ? 2 : 1;
        operations_.push_back(
            list->register_module(std::to_string(operations_.size()), make_operation(operation, options)));
      }
    }
  }

  Tensor forward(const Tensor& earlier, const Tensor& latest) const {
    std::vector<CellValue> values = {CellValue(inputs_[0]->forward(earlier)), CellValue(inputs_[1]->forward(latest))};
    const auto masks = drop_path_->masks(std::ssize(operations_), latest.size(0), latest.options());
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

 private:
  /// What is the input itself is never dropped.
  Tensor apply(size_t at, const CellValue& x, const Tensor& masks) const {
    const auto value = operations_[at]->forward(x);
    if (!masks.defined() || operations_[at]->is_identity()) return value;
    return value * masks[static_cast<int64_t>(at)];
  }

  CellGenotype genotype_;
  std::array<std::shared_ptr<CellLayer>, 2> inputs_;
  std::vector<std::shared_ptr<CellLayer>> operations_;  // node by node
  std::shared_ptr<DropPath> drop_path_;
};

CellWidths widths_of(const Genotype& genotype) {
  return {static_cast<int64_t>(genotype.normal.concat.size()), static_cast<int64_t>(genotype.reduce.concat.size())};
}

}  // namespace

GenotypeNetwork::GenotypeNetwork(const Genotype& genotype, const ModelOptions& options)
    : CellNetwork("GenotypeNetwork", widths_of(genotype), options) {
  add_stem(nullptr, [](Flow outputs) { return outputs; });
  for (int64_t i = 0; i < options.cells; ++i) {
    if (holds_next_block()) add_genotype_cell(genotype, i);
    add_auxiliary_head_after(i);
  }
  add_head();
  initialize(*this, options.seed);
}

void GenotypeNetwork::add_genotype_cell(const Genotype& genotype, int64_t i) {
  const auto& kind = halves(i) ? genotype.reduce : genotype.normal;
  const auto drop_path = std::make_shared<DropPath>(options().drop_path, "cells." + std::to_string(i) + ".drop_path");
  const auto cell = std::make_shared<Cell>(kind, halves(i), inputs_of(i), layers_of(i), drop_path);
  const bool is_last = i + 1 == options().cells;
  add_cell(i, cell, [cell, is_last](const Flow& x) {
    Flow output = {cell->forward(x[x.size() > kOutputBefore ? kOutputBefore : kOutput], x[kOutput])};
    if (!is_last) output.push_back(x[kOutput]);
    if (x.size() > kAuxiliary) output.push_back(x[kAuxiliary]);
    return output;
  });
}

int64_t GenotypeNetwork::features(const Genotype& genotype, const ModelOptions& options) {
  return CellNetwork::features(widths_of(genotype), options);
}

}  // namespace tandem::models
