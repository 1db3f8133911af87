#pragma once
#include "tandem/models/cells/cell_network.h"
#include "tandem/models/genotype.h"

namespace tandem::models {

/// A network whose cells are those of a genotype. What no classifier depends on is not trained. Source: Liu, Simonyan,
/// Yang 2019, DARTS (arXiv:1806.09055), section 3; its code.
class GenotypeNetwork : public CellNetwork {
 public:
  /// Throws as CellNetwork().
  GenotypeNetwork(const Genotype& genotype, const ModelOptions& options);

  /// Of an image, before the embedding.
  static int64_t features(const Genotype& genotype, const ModelOptions& options);

 private:
  std::vector<bool> outputs_read(const Genotype& genotype) const;
  void add_genotype_cell(const CellGenotype& genotype, bool is_read, int64_t i);
};

}  // namespace tandem::models
