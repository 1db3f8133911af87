#include "tandem/models/cells/genotype_network.h"

#include <ATen/ATen.h>

#include <array>

#include "tandem/models/network/layers.h"

namespace tandem::models {
namespace {

using memory::Flow;

class Cell : public torch::nn::Module {
 public:
  Cell(const CellGenotype& genotype, bool halves, const CellInputs& inputs, CellLayerOptions options)
      : torch::nn::Module("Cell"), genotype_(genotype) {
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
    size_t at = 0;
    for (const auto& node : genotype_.nodes) {
      Tensor sum;
      for (const auto& edge : node) {
        const auto value = operations_[at++]->forward(values[edge.input]);
        sum = sum.defined() ? sum + value : value;
      }
      values.emplace_back(std::move(sum));
    }
    std::vector<Tensor> outputs;
    for (const auto value : genotype_.concat) outputs.push_back(values[value].values());
    return outputs.size() == 1 ? outputs[0] : at::cat(outputs, 1);
  }

 private:
  CellGenotype genotype_;
  std::array<std::shared_ptr<CellLayer>, 2> inputs_;
  std::vector<std::shared_ptr<CellLayer>> operations_;  // node by node
};

CellWidths widths_of(const Genotype& genotype) {
  return {static_cast<int64_t>(genotype.normal.concat.size()), static_cast<int64_t>(genotype.reduce.concat.size())};
}

}  // namespace

GenotypeNetwork::GenotypeNetwork(const Genotype& genotype, const ModelOptions& options)
    : CellNetwork("GenotypeNetwork", widths_of(genotype), options) {
  add_stem(nullptr, [](Flow outputs) { return outputs; });
  for (int64_t i = 0; i < options.cells; ++i) {
    if (!holds_next_block()) continue;
    const auto& kind = halves(i) ? genotype.reduce : genotype.normal;
    const auto cell = std::make_shared<Cell>(kind, halves(i), inputs_of(i), layers_of(i));
    const bool is_last = i + 1 == options.cells;
    // The main value comes first; the first cell of a stem that gives one value takes it twice.
    add_cell(i, cell, [cell, is_last](const Flow& x) {
      auto output = cell->forward(x.back(), x.front());
      return is_last ? Flow{std::move(output)} : Flow{std::move(output), x.front()};
    });
  }
  add_head();
  initialize(*this, options.seed);
}

int64_t GenotypeNetwork::features(const Genotype& genotype, const ModelOptions& options) {
  return CellNetwork::features(widths_of(genotype), options);
}

}  // namespace tandem::models
