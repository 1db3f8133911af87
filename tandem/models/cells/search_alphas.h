#pragma once
#include <vector>

#include "tandem/memory/chain.h"
#include "tandem/models/network/layers.h"
#include "tandem/models/search_method.h"
#include "tandem/models/space.h"

namespace tandem::models {

/// What a search learns of the architecture: parameters "<kind>", [edges, operations], and with methods that weigh
/// edges "<kind>_edges", [edges]; drawn from a normal distribution of deviation 1e-3. With methods that keep the
/// progress there is a buffer "progress".
class SearchAlphas : public Layer {
 public:
  SearchAlphas(const Space& space, const SearchMethod& method);

  /// What edges take of them (SearchMethod::weights()), one tensor a kind of cell.
  memory::Flow weights() const;

  void initialize(uint64_t seed, const std::string& name) override;

 private:
  double progress() const;

  SearchMethod method_;
  int64_t inputs_;
  std::vector<std::string> kinds_;
  std::vector<Tensor> operations_, edges_;
  Tensor progress_;
};

}  // namespace tandem::models
