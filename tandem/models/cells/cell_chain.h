#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/models/backbone.h"
#include "tandem/models/network/layers.h"

namespace tandem::models {

/// What all networks of cells have in common: each cell is a block, and at the end is the mean over the image.
class CellChain : public Backbone {
 protected:
  /// `features`: of an image, before the embedding. Throws SettingsError, naming `norm`: one that has an activation of
  /// its own.
  CellChain(std::string name, const ModelOptions& options, int64_t features);

  const ModelOptions& options() const { return options_; }

  /// A block that may pass on more than one value. `forward` must hold what it uses by value, and never this object.
  void add_flow_block(std::string name, std::vector<std::shared_ptr<torch::nn::Module>> modules,
                      std::function<memory::Flow(memory::Flow)> forward);

  /// The block "cells.<i>".
  void add_cell(int64_t i, std::shared_ptr<torch::nn::Module> cell, std::function<memory::Flow(memory::Flow)> forward);

  /// The block "head", which takes the first value, and passes on the others: mean over the image, dropout, [embedding,
  /// norm]. `make_norm`: of a norm that comes before, with ReLU.
  void add_head(const std::function<std::shared_ptr<Normalization>()>& make_norm = {});

 private:
  int64_t features_;
  ModelOptions options_;
  std::shared_ptr<torch::nn::Module> cells_;
};

}  // namespace tandem::models
