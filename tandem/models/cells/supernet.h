#pragma once
#include "tandem/models/cells/cell_network.h"
#include "tandem/models/space.h"

namespace tandem::models {

/// A network that has all architectures of a space in it: each edge of a cell is a mixture of its operations
/// (search_method.h).
///
///   images ── stem ──┬── cell 0 ──┬── cell 1 ──┬── ... ──┬── cell L-1 ── mean over the image
///                    └────────────┴─▶ each cell also takes the output of the cell before the last
///   alphas ── weights ──┴────────────┴────────────────────┘
///
/// The parameters alphas.<...> (SearchAlphas) are what a search learns of the architecture. The first block makes
/// weights of them, which travel on with the images: along a chain, into a block that is computed again. Norms in cells
/// have no weights of their own, and a norm follows each pooling.
/// Source: Liu, Simonyan, Yang 2019, DARTS (arXiv:1806.09055), section 2; its code.
class Supernet : public CellNetwork {
 public:
  /// `space`: of darts_skeleton(). Throws as CellNetwork() and checked_method().
  Supernet(const Space& space, const ModelOptions& options);

  /// Of an image, before the embedding.
  static int64_t features(const Space& space, const ModelOptions& options);
};

}  // namespace tandem::models
