#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "tandem/models/cells/cell_layers.h"
#include "tandem/models/genotype.h"
#include "tandem/models/network/drop_path.h"

namespace tandem::models {

/// For each value of a cell with so many inputs, whether its output depends on it.
std::vector<bool> values_read(const CellGenotype& cell, int64_t inputs);

/// The nodes of a cell whose operations a genotype has chosen. Children "0", "1", ... are the operations, node by node.
class CellNodes : public torch::nn::Module {
 public:
  /// Values 0..inputs - 1 are what the cell takes; operations on them have stride 2 if it `halves`. Operations of nodes
  /// that the output does not depend on are not trained. `name`: of the cell, for DropPath.
  CellNodes(const CellGenotype& genotype, int64_t inputs, bool halves, CellLayerOptions options, double drop_path,
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
