#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "tandem/models/cells/cell_layers.h"
#include "tandem/models/genotype.h"
#include "tandem/models/network/dropout.h"

namespace tandem::models {

/// The nodes of a cell whose operations a genotype has chosen. Children "0", "1", ... are the operations, node by node.
class CellNodes : public torch::nn::Module {
 public:
  /// Operations on the first `halved` values have stride 2. `name`: of the cell, for DropPath.
  CellNodes(const CellGenotype& genotype, int64_t halved, CellLayerOptions options, double drop_path,
            const std::string& name);

  /// `values`: what the cell takes, in the genotype's numbers. Returns its outputs, side by side.
  Tensor forward(std::vector<CellValue> values) const;

 private:
  Tensor apply(size_t at, const CellValue& x, const Tensor& masks) const;

  CellGenotype genotype_;
  std::vector<std::shared_ptr<CellLayer>> operations_;
  std::shared_ptr<DropPath> drop_path_;
};

}  // namespace tandem::models
