#pragma once
#include "tandem/models/cells/cell_network.h"
#include "tandem/models/space.h"

namespace tandem::models {

/// A network that has all architectures of a space in it: each edge of a cell is the sum of its operations, each times
/// its weight.
///
///   images ── stem ──┬── cell 0 ──┬── cell 1 ──┬── ... ──┬── cell L-1 ── mean over the image
///                    └────────────┴─▶ each cell also takes the output of the cell before the last
///   alphas ── softmax ──┴────────────┴────────────────────┘
///
/// The parameters alphas.normal and alphas.reduce, [edges, operations], are what a search learns of the architecture;
/// they are drawn from a normal distribution of deviation 1e-3. The first block makes weights of them, which travel on
/// with the images: along a chain, into a block that is computed again. Norms in cells have no weights of their own,
/// and a norm follows each pooling.
/// Source: Liu, Simonyan, Yang 2019, DARTS (arXiv:1806.09055), section 2; its code.
class Supernet : public CellNetwork {
 public:
  /// Throws as CellNetwork().
  Supernet(const Space& space, const ModelOptions& options);

  /// Of an image, before the embedding.
  static int64_t features(const Space& space, const ModelOptions& options);
};

}  // namespace tandem::models
