#include "tandem/models/cells/bench_201_network.h"

#include <ATen/ATen.h>

#include "tandem/base/error.h"
#include "tandem/models/cells/cell_nodes.h"

namespace tandem::models {
namespace {

using memory::Flow;

constexpr int64_t kRows = 3;

/// An evaluation's order of the members: options are checked before they are used.
const ModelOptions& checked_rows(const ModelOptions& options) {
  if (options.cells % kRows != 0) {
    throw SettingsError("cells is " + std::to_string(options.cells) + ", wanted a multiple of " +
                        std::to_string(kRows) + ", the rows of cells of NAS-Bench-201");
  }
  constexpr int64_t kFactor = int64_t{1} << (kRows - 1);
  for (const auto side : {options.size, options.columns()}) {
    if (side % kFactor == 0) continue;
    throw SettingsError("size is " + std::to_string(side) + " with a network of cells, wanted a multiple of " +
                        std::to_string(kFactor) + ", by which it divides the image's sides");
  }
  return options;
}

class Bench201Cell : public torch::nn::Module {
 public:
  Bench201Cell(const CellGenotype& genotype, const CellLayerOptions& options, double drop_path, const std::string& name)
      : torch::nn::Module("InferCell") {
    nodes_ = register_module("layers", std::make_shared<CellNodes>(genotype, 0, options, drop_path, name));
  }

  Tensor forward(const Tensor& x) const { return nodes_->forward({CellValue(x)}); }

 private:
  std::shared_ptr<CellNodes> nodes_;
};

/// Twice the channels, half of the height and width.
class HalvingBlock : public torch::nn::Module {
 public:
  HalvingBlock(int64_t in, CellLayerOptions options) : torch::nn::Module("ResNetBasicblock") {
    conv_b_ = register_module("conv_b", make_convolution(options.channels, 3, options));
    options.stride = 2;
    conv_a_ = register_module("conv_a", make_convolution(in, 3, options));
    const auto list = register_module("downsample", std::make_shared<torch::nn::Module>("Sequential"));
    shortcut_ = list->register_module("1", std::make_shared<Conv2d>(Conv2d::Options{
                                               .in = in, .out = options.channels, .kernel = 1, .draw = Draw::fan_in}));
  }

  Tensor forward(const Tensor& x) const {
    return shortcut_->forward(at::avg_pool2d(x, 2, 2)) + conv_b_->forward(conv_a_->forward(x));
  }

 private:
  std::shared_ptr<CellLayer> conv_a_, conv_b_;
  std::shared_ptr<Conv2d> shortcut_;
};

}  // namespace

Bench201Network::Bench201Network(const CellGenotype& cell, const ModelOptions& options)
    : CellChain("Bench201Network", checked_rows(options), features(options)) {
  const auto add_block_of = [this](int64_t i, const auto& block) {
    add_cell(i, block, [block](const Flow& x) { return Flow{block->forward(x[0])}; });
  };
  CellLayerOptions layers = {.channels = options.cell_channels, .norm = options.norm};
  if (holds_next_block()) {
    const auto stem = register_module("stem", make_stem(options.channels, layers));
    add_flow_block(
        "stem", {stem},
        [stem, channels = options.channels, height = options.size, width = options.columns()](const Flow& x) {
          check_images(x[0], channels);
          check_size(x[0], height, width);
          return Flow{stem->forward(x[0])};
        });
  }
  int64_t block = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    if (row > 0) {
      const int64_t in = layers.channels;
      layers.channels *= 2;
      if (holds_next_block()) add_block_of(block, std::make_shared<HalvingBlock>(in, layers));
      ++block;
    }
    for (int64_t i = 0; i < options.cells / kRows; ++i, ++block) {
      if (!holds_next_block()) continue;
      add_block_of(block,
                   std::make_shared<Bench201Cell>(cell, layers, options.drop_path, "cells." + std::to_string(block)));
    }
  }
  add_head([&] {
    const auto list = register_module("lastact", std::make_shared<torch::nn::Module>("Sequential"));
    return list->register_module("0", make_normalization(options.norm, layers.channels));
  });
  initialize(*this, options.seed);
}

int64_t Bench201Network::features(const ModelOptions& options) { return options.cell_channels << (kRows - 1); }

}  // namespace tandem::models
