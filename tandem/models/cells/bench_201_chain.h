#pragma once
#include "tandem/models/cells/cell_chain.h"
#include "tandem/models/cells/cell_layers.h"

namespace tandem::models {

/// A network of NAS-Bench-201, with the parameters' names of its code, of cells that take one value:
///
///   images ── stem ── cells ── residual block ── cells ── residual block ── cells ── norm, ReLU, mean over the image
///              C        C                2 C      2 C               4 C      4 C
///
/// Each row of cells has a third of ModelOptions::cells. A residual block halves the image. ModelOptions::stem and
/// has_auxiliary have no effect.
/// Source: Dong and Yang 2020, NAS-Bench-201 (arXiv:2001.00326), section 2; its code.
class Bench201Chain : public CellChain {
 public:
  /// Of an image, before the embedding.
  static int64_t features(const ModelOptions& options);

 protected:
  struct CellBlock {
    std::shared_ptr<torch::nn::Module> cell;
    std::function<memory::Flow(memory::Flow)> forward;
  };

  /// Throws SettingsError, naming `cells` or `size`: a number that 3 does not divide; sides that cannot be halved
  /// twice. Or as CellChain().
  Bench201Chain(std::string name, const ModelOptions& options);

  /// All blocks. `module`, if any, is what `then` uses, which is given the stem's output. `make_cell` is given the
  /// number of a cell among blocks; what its block gets besides x comes from `then`, and cells pass it on.
  void add_blocks(const std::shared_ptr<torch::nn::Module>& module, std::function<memory::Flow(memory::Flow)> then,
                  const std::function<CellBlock(int64_t block, const CellLayerOptions& layers)>& make_cell);

  bool is_last(int64_t block) const;

 private:
  void add_stem(const std::shared_ptr<torch::nn::Module>& module, std::function<memory::Flow(memory::Flow)> then,
                const CellLayerOptions& layers);
};

}  // namespace tandem::models
