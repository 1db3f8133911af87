#pragma once
#include "tandem/models/cells/mixture.h"
#include "tandem/models/search_method.h"

// One function a method, each in a file of its own.
namespace tandem::models::methods {

SearchMethod darts();
SearchMethod pc_darts();
SearchMethod darts_minus();
SearchMethod gdas();

/// Softmax over the operations of each edge.
Tensor operation_shares(const Alphas& alphas);

/// SearchMethod::make_mixture.
template <class Kind>
std::shared_ptr<Mixture> mixture_of(const MixtureOptions& mixture, const CellLayerOptions& layers) {
  return std::make_shared<Kind>(mixture, layers);
}

}  // namespace tandem::models::methods
