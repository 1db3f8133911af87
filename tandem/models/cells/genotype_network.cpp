#include "tandem/models/cells/genotype_network.h"

#include <ATen/ATen.h>

#include <array>

#include "tandem/models/cells/cell_nodes.h"

namespace tandem::models {
namespace {

using memory::Flow;

// What a block passes on. The output before is missing after a stem whose output is both.
enum PassedOn : size_t { kOutput, kOutputBefore, kAuxiliary };

class Cell : public torch::nn::Module {
 public:
  Cell(const CellGenotype& genotype, bool halves, const CellInputs& inputs, const CellLayerOptions& options,
       double drop_path, const std::string& name)
      : torch::nn::Module("Cell") {
    const auto add = [this](const char* child, std::shared_ptr<CellLayer> layer) {
      return register_module(child, layer);
    };
    inputs_ = {add("preprocess0", inputs.is_earlier_larger ? make_halving(inputs.earlier, options)
                                                           : make_projection(inputs.earlier, options)),
               add("preprocess1", make_projection(inputs.latest, options))};
    nodes_ =
        register_module("_ops", std::make_shared<CellNodes>(genotype, kCellInputs, halves, options, drop_path, name));
    const auto read = values_read(genotype, kCellInputs);
    for (int64_t i = 0; i < kCellInputs; ++i) {
      if (!read[i]) freeze(*inputs_[i]);
    }
  }

  Tensor forward(const Tensor& earlier, const Tensor& latest) const {
    return nodes_->forward({CellValue(inputs_[0]->forward(earlier)), CellValue(inputs_[1]->forward(latest))});
  }

 private:
  std::array<std::shared_ptr<CellLayer>, 2> inputs_;
  std::shared_ptr<CellNodes> nodes_;
};

CellWidths widths_of(const Genotype& genotype) {
  return {static_cast<int64_t>(genotype.normal.concat.size()), static_cast<int64_t>(genotype.reduce.concat.size())};
}

}  // namespace

GenotypeNetwork::GenotypeNetwork(const Genotype& genotype, const ModelOptions& options)
    : CellNetwork("GenotypeNetwork", widths_of(genotype), options) {
  const auto read = outputs_read(genotype);
  add_stem(nullptr, [](Flow outputs) { return outputs; });
  for (auto& stem : named_children()) {
    if (!read[1] && (!read[0] || stem.key() == "stem1")) freeze(*stem.value());
  }
  for (int64_t i = 0; i < options.cells; ++i) {
    if (holds_next_block()) {
      add_genotype_cell(halves(i) ? genotype.reduce : genotype.normal, read[i + kCellInputs], i);
    }
    add_auxiliary_head_after(i);
  }
  add_head();
  initialize(*this, options.seed);
}

/// Whether a classifier depends on the output of the stem for cell -2, that for cell -1, and those of cells 0, 1, ...
std::vector<bool> GenotypeNetwork::outputs_read(const Genotype& genotype) const {
  std::vector<bool> read(options().cells + kCellInputs);
  read.back() = true;
  for (auto i = options().cells - 1; i >= 0; --i) {
    if (has_auxiliary_head_after(i)) read[i + kCellInputs] = true;
    if (!read[i + kCellInputs]) continue;
    const auto values = values_read(halves(i) ? genotype.reduce : genotype.normal, kCellInputs);
    for (int64_t input = 0; input < kCellInputs; ++input) read[i + input] = read[i + input] || values[input];
  }
  return read;
}

void GenotypeNetwork::add_genotype_cell(const CellGenotype& genotype, bool is_read, int64_t i) {
  const auto cell = std::make_shared<Cell>(genotype, halves(i), inputs_of(i), layers_of(i), options().drop_path,
                                           "cells." + std::to_string(i));
  if (!is_read) freeze(*cell);
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
