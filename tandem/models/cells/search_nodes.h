#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "tandem/models/cells/mixture.h"
#include "tandem/models/model.h"
#include "tandem/models/search_method.h"
#include "tandem/models/space.h"

namespace tandem::models {

/// What a cell of a search is made of.
struct SearchCellOptions {
  const Space& space;
  const CellSpace& cell;  // of the space
  const SearchMethod& method;
  int64_t partial = 4;
  int64_t halved = 0;  // operations on so many of the first values have stride 2
  CellLayerOptions layers;
};

/// The nodes of a cell of which each edge is a mixture of operations. Children "0", "1", ... are the edges.
class SearchNodes : public torch::nn::Module {
 public:
  explicit SearchNodes(const SearchCellOptions& options);

  /// `values`: what the cell takes; `weights`: as SearchMethod::weights() makes them. Returns the cell's output.
  Tensor forward(std::vector<CellValue> values, const Tensor& weights) const;

 private:
  int64_t inputs_, nodes_;
  bool gives_nodes_;
  std::vector<std::shared_ptr<Mixture>> edges_;
};

/// The method that the options name. Throws SettingsError, naming `method` or `cell_channels`: an unknown name,
/// channels that the method cannot divide.
const SearchMethod& checked_method(const ModelOptions& options);

}  // namespace tandem::models
