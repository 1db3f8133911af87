#include "tandem/models/network/resnet.h"

#include "tandem/layers/dropout.h"

#include <array>
#include <cmath>
#include <utility>

namespace tandem::models {
namespace {

using memory::Block;
using memory::Flow;

constexpr int64_t kBottleneckExpansion = 4;

int64_t outof(const ResNetShape::Stage& stage, bool bottleneck) {
  return stage.width * (bottleneck ? kBottleneckExpansion : 1);
}

int64_t outof(const ResNetShape& shape) { return outof(shape.stages.back(), shape.bottleneck); }

int64_t dim_of(const ResNetShape& shape, const ModelOptions& options) {
  return options.embedding > 0 ? options.embedding : ResNet::features(shape, options);
}

/// Without normalisation the sum over all branches would grow with the depth (Zhang et al. 2019, Fixup).
double branch_gain(const ResNetShape& shape, Norm norm) {
  if (norm != Norm::none) return 1.0;
  int64_t blocks = 0;
  for (const auto& stage : shape.stages) blocks += stage.blocks;
  return 1.0 / std::sqrt(static_cast<double>(blocks));
}

/// Along which dim the ranks of a group divide a convolution's weight.
enum class Cut : uint8_t { nothing, outputs, inputs };

/// Of the branch's convolutions, in their order. The stem, the shortcuts' convolutions and a bottleneck's first one are
/// whole: to divide them, too, would take an exchange each.
constexpr std::array kBasicCuts = {Cut::outputs, Cut::inputs};
constexpr std::array kBottleneckCuts = {Cut::nothing, Cut::outputs, Cut::inputs};

std::shared_ptr<Conv2d> make_convolution(const Conv2d::Options& shape, Cut cut, const layers::Division& channels) {
  switch (cut) {
    case Cut::outputs:
      return std::make_shared<layers::OutputConv2d>(shape, channels, /*gathers=*/false);
    case Cut::inputs:
      return std::make_shared<layers::InputConv2d>(shape, channels);
    case Cut::nothing:
      break;
  }
  return std::make_shared<Conv2d>(shape);
}

using Norms = std::vector<std::shared_ptr<Normalization>>;

/// One part for the convolution and one for the norms, or one for both if the first norm overwrites its input.
void add_parts(const std::shared_ptr<Conv2d>& conv, const Norms& norms, std::function<Flow(const Flow&)> convolve,
               std::function<Flow(const Flow&)> normalize, std::vector<Block>& parts) {
  Block first{.name = {}, .modules = {conv}, .forward = std::move(convolve)},
      second{.name = {}, .modules = {}, .forward = std::move(normalize)};
  for (const auto& norm : norms) {
    if (norm) second.modules.push_back(norm);
  }
  if (norms.at(0)->keeps_input()) {
    parts.push_back(std::move(first));
    parts.push_back(std::move(second));
    return;
  }
  first.modules.insert(first.modules.end(), second.modules.begin(), second.modules.end());
  first.forward = [convolve = std::move(first.forward), normalize = std::move(second.forward)](const Flow& x) {
    return normalize(convolve(x));
  };
  parts.push_back(std::move(first));
}

}  // namespace

ResidualBlock::ResidualBlock(const Options& options) : torch::nn::Module("ResidualBlock") {
  const int64_t in = options.in, width = options.width.total(), stride = options.stride;
  const auto add_norm = [&](torch::nn::Module& parent, const std::string& name, int64_t channels) {
    return parent.register_module(name, make_normalization(options.norm, channels, *options.activation));
  };
  const auto add = [&](const std::string& number, Conv2d::Options shape, Cut cut) -> Step {
    shape.bias = options.norm == Norm::none;
    const auto conv = register_module("conv" + number, make_convolution(shape, cut, options.width));
    if (cut != Cut::outputs) return {conv, add_norm(*this, "bn" + number, shape.out)};
    const auto norm = add_norm(*this, "bn" + number, options.width.count());
    norm->divide(options.width);
    return {conv, norm};
  };
  const int64_t out = options.bottleneck ? width * kBottleneckExpansion : width;
  if (options.bottleneck) {
    branch_ = {add("1", {.in = in, .out = width, .kernel = 1}, kBottleneckCuts[0]),
               add("2", {.in = width, .out = width, .kernel = 3, .stride = stride, .padding = 1}, kBottleneckCuts[1]),
               add("3", {.in = width, .out = out, .kernel = 1, .gain = options.gain}, kBottleneckCuts[2])};
  } else {
    branch_ = {add("1", {.in = in, .out = width, .kernel = 3, .stride = stride, .padding = 1}, kBasicCuts[0]),
               add("2", {.in = width, .out = width, .kernel = 3, .padding = 1, .gain = options.gain}, kBasicCuts[1])};
  }
  if (stride != 1 || in != out) {
    auto downsample = register_module("downsample", std::make_shared<torch::nn::Module>("Downsample"));
    const Conv2d::Options shape{
        .in = in, .out = out, .kernel = 1, .stride = stride, .bias = options.norm == Norm::none};
    shortcut_ = {downsample->register_module("0", std::make_shared<Conv2d>(shape)), add_norm(*downsample, "1", out)};
  }
}

std::vector<Block> ResidualBlock::parts() const {
  std::vector<Block> parts;
  if (shortcut_.conv) {
    parts.push_back({.name = {}, .modules = {shortcut_.conv}, .forward = [conv = shortcut_.conv](const Flow& x) {
                       return Flow{x[0], conv->forward(x[0])};
                     }});
  }
  for (const auto& [conv, norm] : branch_) {
    const auto convolve = [conv](const Flow& x) { return Flow{conv->forward(x[0]), x.back()}; };
    if (conv == branch_.back().conv) {
      add_parts(conv, {norm, shortcut_.norm}, convolve, last_norm(), parts);
    } else {
      add_parts(
          conv, {norm}, convolve,
          [norm](const Flow& x) {
            return Flow{norm->forward(x[0], Then::activation), x[1]};
          },
          parts);
    }
  }
  return parts;
}

/// The norm of the shortcut keeps its input, which is therefore what crosses the cuts, not its output.
std::function<Flow(const Flow&)> ResidualBlock::last_norm() const {
  return [norm = branch_.back().norm, shortcut = shortcut_.norm](const Flow& x) {
    return Flow{norm->forward(x[0], Then::activation, shortcut ? shortcut->forward(x[1]) : x[1])};
  };
}

ResNet::ResNet(const ResNetShape& shape, const ModelOptions& options)
    : Backbone("ResNet", options, dim_of(shape, options)) {
  if (holds_next_block()) add_stem(shape, options);
  const double gain = branch_gain(shape, options.norm);
  const auto& activation = memory::activation_of(options.activation);
  int64_t channels = shape.stem_channels;
  for (size_t i = 0; i < shape.stages.size(); ++i) {
    const auto& stage = shape.stages[i];
    const auto name = "layer" + std::to_string(i + 1);
    auto layer = register_module(name, std::make_shared<torch::nn::Module>("Stage"));
    for (int64_t k = 0; k < stage.blocks; ++k) {
      const int64_t in = std::exchange(channels, outof(stage, shape.bottleneck));
      if (!holds_next_block()) continue;
      const auto number = std::to_string(k);
      const auto width = divide_channels(options, name + "." + number, stage.width);
      const auto block = layer->register_module(
          number, std::make_shared<ResidualBlock>(ResidualBlock::Options{
                      in, width, k == 0 ? stage.stride : 1, shape.bottleneck, options.norm, &activation, gain}));
      add_block(name + "." + number, block->parts());
    }
  }
  if (holds_next_block()) add_head(shape, options);
  initialize(*this, options.seed);
  if (!options.zero_gamma) return;
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* block = dynamic_cast<ResidualBlock*>(module.get())) block->zero_gamma();
  }
}

int64_t ResNet::features(const ResNetShape& shape, const ModelOptions& options) {
  if (!shape.flatten) return outof(shape);
  const auto halved = [](int64_t size) { return (size + 1) / 2; };
  const auto left_of = [&](int64_t side) {
    side = halved(side);
    if (shape.stem_pool) side = halved(side);
    for (const auto& stage : shape.stages) side = stage.stride == 2 ? halved(side) : side;
    return side;
  };
  return outof(shape) * left_of(options.size) * left_of(options.columns());
}

void ResNet::add_stem(const ResNetShape& shape, const ModelOptions& options) {
  const auto& activation = memory::activation_of(options.activation);
  const auto conv1 =
      register_module("conv1", std::make_shared<Conv2d>(Conv2d::Options{.in = options.channels,
                                                                        .out = shape.stem_channels,
                                                                        .kernel = shape.stem_kernel,
                                                                        .stride = 2,
                                                                        .padding = shape.stem_kernel / 2,
                                                                        .bias = options.norm == Norm::none}));
  const auto bn1 = register_module("bn1", make_normalization(options.norm, shape.stem_channels, activation));
  std::vector<Block> parts;
  add_parts(
      conv1, {bn1},
      [=, channels = options.channels, height = options.size, width = options.columns(),
       has_one_size = shape.flatten](const Flow& x) {
        const auto& images = x[0];
        check_images(images, channels);
        if (has_one_size) check_size(images, height, width);
        return Flow{conv1->forward(laid_out(images))};
      },
      [=](const Flow& x) { return Flow{bn1->forward(x[0], Then::activation)}; }, parts);
  if (shape.stem_pool) {
    parts.push_back(
        {.name = {}, .modules = {}, .forward = [](const Flow& x) { return Flow{at::max_pool2d(x[0], 3, 2, 1)}; }});
  }
  add_block("stem", std::move(parts));
}

void ResNet::add_head(const ResNetShape& shape, const ModelOptions& options) {
  const auto pool = [flattens = shape.flatten](const Tensor& x) { return flattens ? x.flatten(1) : x.mean({2, 3}); };
  const auto dropout = register_module("dropout", std::make_shared<layers::Dropout>(options.dropout, "dropout"));
  if (options.embedding == 0) {
    return add_block("head", {dropout}, [=](const Tensor& x) { return dropout->forward(pool(x)); });
  }
  const auto embedding = register_module(
      "embedding", std::make_shared<layers::RowLinear>(
                       divide(options, "embedding", features(shape, options), "features"), options.embedding,
                       layers::RowLinear::Options{.bias = options.norm == Norm::none, .scatters = true}));
  const auto& activation = memory::activation_of(options.activation);
  const auto bn = register_module("embedding_bn", make_normalization(options.norm, options.embedding, activation));
  add_block("head", {dropout, embedding, bn},
            [=](const Tensor& x) { return bn->forward(embedding->forward(dropout->forward(pool(x)))); });
}

const ResNetShape& resnet18() {
  static const ResNetShape shape{64, 7, true, false, false, {{64, 2, 1}, {128, 2, 2}, {256, 2, 2}, {512, 2, 2}}};
  return shape;
}

const ResNetShape& resnet34() {
  static const ResNetShape shape{64, 7, true, false, false, {{64, 3, 1}, {128, 4, 2}, {256, 6, 2}, {512, 3, 2}}};
  return shape;
}

const ResNetShape& resnet50() {
  static const ResNetShape shape{64, 7, true, true, false, {{64, 3, 1}, {128, 4, 2}, {256, 6, 2}, {512, 3, 2}}};
  return shape;
}

const ResNetShape& resnet_glyph() {
  static const ResNetShape shape{32, 3, false, false, true, {{32, 1, 1}, {64, 1, 2}, {128, 1, 2}}};
  return shape;
}

}  // namespace tandem::models
