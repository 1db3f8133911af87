#pragma once
#include "tandem/models/backbone.h"
#include "tandem/models/genotype.h"

namespace tandem::models {

/// A network of cells, with the parameters' names of quark0/darts.
///
///   stem ──┬── cell 0 ──┬── cell 1 ──┬── ... ──┬── cell L-1 ── mean over the image ── [embedding, norm]
///          └────────────┴─▶ each cell also takes the output of the cell before the last
///
/// A cell projects both inputs to C channels, and gives as many times C as its genotype has outputs. The cells L / 3
/// and 2 L / 3 halve the image and double C. Each cell is a block of the chain; what crosses a cut are the outputs of
/// two cells.
///
/// Stem::cifar: a 3 x 3 convolution to 3 C channels, norm. Stem::imagenet: two convolutions of stride 2 to C channels,
/// and a third for the second input of the first cell: the image is an eighth when it enters the cells.
/// Source: Liu, Simonyan, Yang 2019, DARTS (arXiv:1806.09055), section 3; its code.
class GenotypeNetwork : public Backbone {
 public:
  /// Throws SettingsError, naming `cells`, `cell_channels`, `size` or `norm`: fewer than 3 cells; sides that cannot be
  /// halved as often as the network does; a norm that has an activation of its own.
  GenotypeNetwork(const Genotype& genotype, const ModelOptions& options);

  /// Of an image, before the embedding.
  static int64_t features(const Genotype& genotype, const ModelOptions& options);

 private:
  void add_head(int64_t features, const ModelOptions& options);
};

}  // namespace tandem::models
