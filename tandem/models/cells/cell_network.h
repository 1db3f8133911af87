#pragma once
#include <functional>

#include "tandem/models/cells/cell_chain.h"
#include "tandem/models/cells/cell_layers.h"

namespace tandem::models {

/// How many outputs of nodes make up the output of a cell of each kind.
struct CellWidths {
  int64_t normal = 0, reduce = 0;
};

/// Channels of the two values that a cell takes, and whether the first is twice as high and wide as the second.
struct CellInputs {
  int64_t earlier, latest;
  bool is_earlier_larger;
};

/// A network whose cells take the outputs of the two before them, with the parameters' names of quark0/darts:
///
///   stem ──┬── cell 0 ──┬── cell 1 ──┬── ... ──┬── cell L-1 ── mean over the image ── [embedding, norm]
///          └────────────┴─▶ each cell also takes the output of the cell before the last
///
/// A cell projects both inputs to C channels. The cells L / 3 and 2 L / 3 halve the image and double C. Each cell is a
/// block of the chain; what crosses a cut are the outputs of two cells.
///
/// With ModelOptions::has_auxiliary an AuxiliaryHead looks at the output of cell 2 L / 3 while the network is trained.
///
/// Stem::cifar: a 3 x 3 convolution to 3 C channels, norm. Stem::imagenet: two convolutions of stride 2 to C channels,
/// and a third for the second input of the first cell: the image is an eighth when it enters the cells.
class CellNetwork : public CellChain {
 public:
  /// Of an image, before the embedding.
  static int64_t features(const CellWidths& widths, const ModelOptions& options);

 protected:
  /// Throws SettingsError, naming `cells` or `size`: fewer than 3 cells; sides that cannot be halved as often as the
  /// network does, or leave an auxiliary head one pixel. Or as CellChain().
  CellNetwork(std::string name, const CellWidths& widths, const ModelOptions& options);

  bool halves(int64_t cell) const;
  bool has_auxiliary_head_after(int64_t cell) const;
  CellInputs inputs_of(int64_t cell) const;
  CellLayerOptions layers_of(int64_t cell) const;

  /// The block "stem". `then` is given the output of the stem and, if the first cell takes another one besides, that;
  /// `module`, if any, is what it uses.
  void add_stem(const std::shared_ptr<torch::nn::Module>& module, std::function<memory::Flow(memory::Flow)> then);

  /// The block "auxiliary_head" behind this cell, if it has one: it adds a value to what is passed on, while the
  /// network is trained.
  void add_auxiliary_head_after(int64_t cell);

 private:
  CellWidths widths_;
};

}  // namespace tandem::models
