#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <string_view>
#include <vector>

#include "tandem/models/cells/cell_layers.h"

namespace tandem::models {

/// An edge of a cell in a search: several operations in one.
class Mixture : public torch::nn::Module {
 public:
  /// Adds to `sum`, which is undefined at first. `weights`: [columns], as SearchMethod::weights() gives an edge.
  virtual Tensor add_to(Tensor sum, const CellValue& x, const Tensor& weights) const = 0;

 protected:
  /// The operations are children "0", "1", ... of a child "_ops".
  Mixture(const std::vector<std::string_view>& operations, const CellLayerOptions& layers);

  /// Adds to `sum` each operation times its weight; `weights` may have more.
  Tensor add_operations(Tensor sum, const CellValue& x, const std::vector<Tensor>& weights) const;

  const std::vector<std::shared_ptr<CellLayer>>& operations() const { return operations_; }

 private:
  std::vector<std::shared_ptr<CellLayer>> operations_;
  std::vector<bool> is_zero_;  // what adds nothing: its weight counts through the others' alone
};

/// `sum + value`, or the value if there is no sum yet.
Tensor added(const Tensor& sum, Tensor value);

}  // namespace tandem::models
