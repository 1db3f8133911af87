#pragma once
#include "tandem/models/cells/bench_201_chain.h"
#include "tandem/models/genotype.h"

namespace tandem::models {

/// The network of NAS-Bench-201 of a cell that takes one value.
class Bench201Network : public Bench201Chain {
 public:
  /// Throws as Bench201Chain().
  Bench201Network(const CellGenotype& cell, const ModelOptions& options);
};

}  // namespace tandem::models
