#pragma once
#include "tandem/models/cells/cell_chain.h"
#include "tandem/models/genotype.h"

namespace tandem::models {

/// A network of NAS-Bench-201, with the parameters' names of its code, for a cell that takes one value:
///
///   images ── stem ── cells ── residual block ── cells ── residual block ── cells ── norm, ReLU, mean over the image
///              C        C                2 C      2 C               4 C      4 C
///
/// Each row of cells has a third of ModelOptions::cells. A residual block halves the image. ModelOptions::stem and
/// has_auxiliary have no effect.
/// Source: Dong and Yang 2020, NAS-Bench-201 (arXiv:2001.00326), section 2; its code.
class Bench201Network : public CellChain {
 public:
  /// Throws SettingsError, naming `cells` or `size`: a number that 3 does not divide; sides that cannot be halved
  /// twice. Or as CellChain().
  Bench201Network(const CellGenotype& cell, const ModelOptions& options);

  /// Of an image, before the embedding.
  static int64_t features(const ModelOptions& options);
};

}  // namespace tandem::models
