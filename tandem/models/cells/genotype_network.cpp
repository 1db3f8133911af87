#include "tandem/models/cells/genotype_network.h"

#include <ATen/ATen.h>

#include "tandem/base/error.h"
#include "tandem/models/cells/cell_layers.h"
#include "tandem/models/network/dropout.h"
#include "tandem/models/network/layers.h"

namespace tandem::models {
namespace {

using memory::Block;
using memory::Flow;

constexpr int64_t kFewestCells = 3, kStemMultiplier = 3;

/// Channels of the two values that a cell takes, and whether the first is twice as high and wide as the second.
struct CellInputs {
  int64_t earlier, latest;
  bool is_earlier_larger;
};

class Cell : public torch::nn::Module {
 public:
  Cell(const CellGenotype& genotype, bool halves, const CellInputs& inputs, CellLayerOptions options)
      : torch::nn::Module("Cell"), genotype_(genotype) {
    const auto add = [this](const char* name, std::shared_ptr<CellLayer> layer) {
      return register_module(name, layer);
    };
    inputs_ = {add("preprocess0", inputs.is_earlier_larger ? make_halving(inputs.earlier, options)
                                                           : make_projection(inputs.earlier, options)),
               add("preprocess1", make_projection(inputs.latest, options))};
    const auto list = register_module("_ops", std::make_shared<torch::nn::Module>("ModuleList"));
    for (const auto& node : genotype_.nodes) {
      for (const auto& [operation, input] : node) {
        options.stride = halves && input < 2 ? 2 : 1;
        operations_.push_back(
            list->register_module(std::to_string(operations_.size()), make_operation(operation, options)));
      }
    }
  }

  Tensor forward(const Tensor& earlier, const Tensor& latest) const {
    std::vector<Tensor> values = {inputs_[0]->forward(earlier), inputs_[1]->forward(latest)};
    size_t at = 0;
    for (const auto& node : genotype_.nodes) {
      Tensor sum;
      for (const auto& edge : node) {
        const auto value = operations_[at++]->forward(values[edge.input]);
        sum = sum.defined() ? sum + value : value;
      }
      values.push_back(sum);
    }
    std::vector<Tensor> outputs;
    for (const auto value : genotype_.concat) outputs.push_back(values[value]);
    return outputs.size() == 1 ? outputs[0] : at::cat(outputs, 1);
  }

 private:
  CellGenotype genotype_;
  std::array<std::shared_ptr<CellLayer>, 2> inputs_;
  std::vector<std::shared_ptr<CellLayer>> operations_;  // node by node
};

/// How often the image is halved, the stem included.
int64_t halvings(const ModelOptions& options) { return options.stem == Stem::imagenet ? 5 : 2; }

bool halves(const ModelOptions& options, int64_t cell) {
  return cell == options.cells / 3 || cell == 2 * options.cells / 3;
}

int64_t channels_of(const ModelOptions& options, int64_t cell) {
  int64_t channels = options.cell_channels;
  for (int64_t i = 0; i <= cell; ++i) channels *= halves(options, i) ? 2 : 1;
  return channels;
}

const CellGenotype& kind_of(const Genotype& genotype, const ModelOptions& options, int64_t cell) {
  return halves(options, cell) ? genotype.reduce : genotype.normal;
}

int64_t outputs_of(const Genotype& genotype, const ModelOptions& options, int64_t cell) {
  return channels_of(options, cell) * static_cast<int64_t>(kind_of(genotype, options, cell).concat.size());
}

CellInputs inputs_of(const Genotype& genotype, const ModelOptions& options, int64_t cell) {
  const bool is_imagenet = options.stem == Stem::imagenet;
  const int64_t of_stem = is_imagenet ? options.cell_channels : kStemMultiplier * options.cell_channels;
  const auto channels = [&](int64_t i) { return i < 0 ? of_stem : outputs_of(genotype, options, i); };
  return {channels(cell - 2), channels(cell - 1), cell == 0 ? is_imagenet : halves(options, cell - 1)};
}

void check(const ModelOptions& options) {
  const auto refuse = [](const std::string& fault) { throw SettingsError(fault); };
  if (options.cells < kFewestCells) {
    refuse("cells is " + std::to_string(options.cells) + ", wanted " + std::to_string(kFewestCells) +
           " or more: of fewer, none keeps the image's size");
  }
  const int64_t factor = int64_t{1} << halvings(options);
  for (const auto side : {options.size, options.columns()}) {
    if (side % factor == 0) continue;
    refuse("size is " + std::to_string(side) + " with a network of cells, wanted a multiple of " +
           std::to_string(factor) + ", by which it divides the image's sides");
  }
  if (has_own_activation(options.norm)) {
    refuse(
        "norm has an activation of its own, wanted another one: in a network of cells the activation comes before "
        "the convolution");
  }
}

/// An evaluation's order of the members: options are checked before they are used.
const ModelOptions& checked(const ModelOptions& options) {
  check(options);
  return options;
}

/// A child of a container, by its number.
template <class Module>
std::shared_ptr<Module> add(torch::nn::Module& list, int number, std::shared_ptr<Module> module) {
  return list.register_module(std::to_string(number), std::move(module));
}

std::shared_ptr<Conv2d> conv3x3(int64_t in, int64_t out, int64_t stride) {
  return std::make_shared<Conv2d>(
      Conv2d::Options{.in = in, .out = out, .kernel = 3, .stride = stride, .padding = 1, .draw = Draw::fan_in});
}

std::vector<std::shared_ptr<torch::nn::Module>> one(std::shared_ptr<torch::nn::Module> module) {
  return {std::move(module)};
}

/// A block that passes on more than one value.
std::vector<Block> flow_block(std::vector<std::shared_ptr<torch::nn::Module>> modules,
                              std::function<Flow(const Flow&)> forward) {
  return {{.name = {}, .modules = std::move(modules), .forward = std::move(forward)}};
}

std::function<Flow(const Flow&)> cifar_stem(torch::nn::Module& stem, const ModelOptions& options) {
  const int64_t channels = kStemMultiplier * options.cell_channels;
  const auto conv = add(stem, 0, conv3x3(options.channels, channels, 1));
  const auto norm = add(stem, 1, make_normalization(options.norm, channels));
  return [conv, norm](const Flow& x) { return Flow{norm->forward(conv->forward(laid_out(x[0])))}; };
}

std::function<Flow(const Flow&)> imagenet_stem(torch::nn::Module& stem0, torch::nn::Module& stem1,
                                               const ModelOptions& options) {
  const int64_t channels = options.cell_channels, half = channels / 2;
  const auto norm = [&](torch::nn::Module& list, int number, int64_t width) {
    return add(list, number, make_normalization(options.norm, width));
  };
  const auto conv_0 = add(stem0, 0, conv3x3(options.channels, half, 2));
  const auto norm_0 = norm(stem0, 1, half);
  const auto conv_1 = add(stem0, 3, conv3x3(half, channels, 2));
  const auto norm_1 = norm(stem0, 4, channels);
  const auto conv_2 = add(stem1, 1, conv3x3(channels, channels, 2));
  const auto norm_2 = norm(stem1, 2, channels);
  return [=](const Flow& x) {
    const auto earlier =
        norm_1->forward(conv_1->forward(norm_0->forward(conv_0->forward(laid_out(x[0])), Then::activation)));
    return Flow{norm_2->forward(conv_2->forward(earlier.relu())), earlier};
  };
}

}  // namespace

GenotypeNetwork::GenotypeNetwork(const Genotype& genotype, const ModelOptions& options)
    : Backbone("GenotypeNetwork", checked(options),
               options.embedding > 0 ? options.embedding : features(genotype, options)) {
  const auto module = [this](const std::string& name) {
    return register_module(name, std::make_shared<torch::nn::Module>("Sequential"));
  };
  if (holds_next_block()) {
    std::vector<std::shared_ptr<torch::nn::Module>> stems;
    std::function<Flow(const Flow&)> forward;
    if (options.stem == Stem::cifar) {
      stems = {module("stem")};
      forward = cifar_stem(*stems[0], options);
    } else {
      stems = {module("stem0"), module("stem1")};
      forward = imagenet_stem(*stems[0], *stems[1], options);
    }
    add_block("stem", flow_block(stems, [forward = std::move(forward), channels = options.channels,
                                         height = options.size, width = options.columns()](const Flow& x) {
                check_images(x[0], channels);
                check_size(x[0], height, width);
                return forward(x);
              }));
  }
  const auto cells = module("cells");
  for (int64_t i = 0; i < options.cells; ++i) {
    if (!holds_next_block()) continue;
    const auto cell = cells->register_module(
        std::to_string(i),
        std::make_shared<Cell>(kind_of(genotype, options, i), halves(options, i), inputs_of(genotype, options, i),
                               CellLayerOptions{.channels = channels_of(options, i), .norm = options.norm}));
    const bool is_last = i + 1 == options.cells;
    // The main value comes first; the first cell of a stem that gives one value takes it twice.
    add_block("cells." + std::to_string(i), flow_block(one(cell), [cell, is_last](const Flow& x) {
                auto output = cell->forward(x.back(), x.front());
                return is_last ? Flow{std::move(output)} : Flow{std::move(output), x.front()};
              }));
  }
  if (holds_next_block()) add_head(features(genotype, options), options);
  initialize(*this, options.seed);
}

int64_t GenotypeNetwork::features(const Genotype& genotype, const ModelOptions& options) {
  return outputs_of(genotype, options, options.cells - 1);
}

void GenotypeNetwork::add_head(int64_t features, const ModelOptions& options) {
  const auto dropout = register_module("dropout", std::make_shared<Dropout>(options.dropout, "dropout"));
  const auto pool = [dropout](const Tensor& x) { return dropout->forward(x.mean({2, 3})); };
  if (options.embedding == 0) return add_block("head", {dropout}, pool);
  const auto embedding = register_module("embedding", std::make_shared<Linear>(features, options.embedding,
                                                                               /*bias=*/options.norm == Norm::none));
  const auto bn = register_module("embedding_bn", make_normalization(options.norm, options.embedding));
  add_block("head", {dropout, embedding, bn},
            [=](const Tensor& x) { return bn->forward(embedding->forward(pool(x))); });
}

}  // namespace tandem::models
