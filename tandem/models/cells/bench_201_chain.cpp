#include "tandem/models/cells/bench_201_chain.h"

#include <ATen/ATen.h>

#include "tandem/base/error.h"

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

Bench201Chain::Bench201Chain(std::string name, const ModelOptions& options)
    : CellChain(std::move(name), checked_rows(options), features(options)) {}

int64_t Bench201Chain::features(const ModelOptions& options) { return options.cell_channels << (kRows - 1); }

bool Bench201Chain::is_last(int64_t block) const { return block == options().cells + kRows - 2; }

void Bench201Chain::add_stem(const std::shared_ptr<torch::nn::Module>& module, std::function<Flow(Flow)> then,
                             const CellLayerOptions& layers) {
  if (!holds_next_block()) return;
  const auto stem = register_module("stem", make_stem(options().channels, layers));
  std::vector<std::shared_ptr<torch::nn::Module>> modules = {stem};
  if (module) modules.push_back(module);
  add_flow_block("stem", modules,
                 [stem, then = std::move(then), channels = options().channels, height = options().size,
                  width = options().columns()](const Flow& x) {
                   check_images(x[0], channels);
                   check_size(x[0], height, width);
                   return then({stem->forward(x[0])});
                 });
}

void Bench201Chain::add_blocks(const std::shared_ptr<torch::nn::Module>& module, std::function<Flow(Flow)> then,
                               const std::function<CellBlock(int64_t, const CellLayerOptions&)>& make_cell) {
  CellLayerOptions layers = {.channels = options().cell_channels, .norm = options().norm};
  add_stem(module, std::move(then), layers);
  int64_t block = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    if (row > 0) {
      const int64_t in = layers.channels;
      layers.channels *= 2;
      if (holds_next_block()) {
        const auto halving = std::make_shared<HalvingBlock>(in, layers);
        add_cell(block, halving, [halving](Flow x) {
          x[0] = halving->forward(x[0]);
          return x;
        });
      }
      ++block;
    }
    for (int64_t i = 0; i < options().cells / kRows; ++i, ++block) {
      if (!holds_next_block()) continue;
      auto made = make_cell(block, layers);
      add_cell(block, std::move(made.cell), std::move(made.forward));
    }
  }
  add_head([&] {
    const auto list = register_module("lastact", std::make_shared<torch::nn::Module>("Sequential"));
    return list->register_module("0", make_normalization(options().norm, layers.channels));
  });
}

}  // namespace tandem::models
