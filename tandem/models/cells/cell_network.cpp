#include "tandem/models/cells/cell_network.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/models/cells/auxiliary_head.h"
#include "tandem/models/network/layers.h"

namespace tandem::models {
namespace {

using memory::Flow;

constexpr int64_t kFewestCells = 3;

/// How often the image is halved, the stem included.
int64_t halvings(const ModelOptions& options) { return options.stem == Stem::imagenet ? 5 : 2; }

bool halves_in(const ModelOptions& options, int64_t cell) {
  return cell == options.cells / 3 || cell == 2 * options.cells / 3;
}

int64_t channels_of(const ModelOptions& options, int64_t cell) {
  int64_t channels = options.cell_channels;
  for (int64_t i = 0; i <= cell; ++i) channels *= halves_in(options, i) ? 2 : 1;
  return channels;
}

int64_t outputs_of(const CellWidths& widths, const ModelOptions& options, int64_t cell) {
  return channels_of(options, cell) * (halves_in(options, cell) ? widths.reduce : widths.normal);
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
  if (options.has_auxiliary && std::min(options.size, options.columns()) < 2 * factor) {
    refuse("size is " + std::to_string(std::min(options.size, options.columns())) +
           " with an auxiliary classifier, wanted " + std::to_string(2 * factor) + " or more");
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

CellNetwork::CellNetwork(std::string name, const CellWidths& widths, const ModelOptions& options)
    : CellChain(std::move(name), checked(options), features(widths, options)), widths_(widths) {
  if (options.has_auxiliary) set_auxiliary_dim(AuxiliaryHead::kFeatures);
}

int64_t CellNetwork::features(const CellWidths& widths, const ModelOptions& options) {
  return outputs_of(widths, options, options.cells - 1);
}

bool CellNetwork::halves(int64_t cell) const { return halves_in(options(), cell); }

bool CellNetwork::has_auxiliary_head_after(int64_t cell) const {
  return options().has_auxiliary && cell == 2 * options().cells / 3;
}

CellInputs CellNetwork::inputs_of(int64_t cell) const {
  const bool is_imagenet = options().stem == Stem::imagenet;
  const int64_t of_stem = is_imagenet ? options().cell_channels : kStemMultiplier * options().cell_channels;
  const auto channels = [&](int64_t i) { return i < 0 ? of_stem : outputs_of(widths_, options(), i); };
  return {channels(cell - 2), channels(cell - 1), cell == 0 ? is_imagenet : halves(cell - 1)};
}

CellLayerOptions CellNetwork::layers_of(int64_t cell) const {
  return {.channels = channels_of(options(), cell), .norm = options().norm};
}

void CellNetwork::add_stem(const std::shared_ptr<torch::nn::Module>& module, std::function<Flow(Flow)> then) {
  if (!holds_next_block()) return;
  const auto list = [this](const std::string& name) {
    return register_module(name, std::make_shared<torch::nn::Module>("Sequential"));
  };
  std::vector<std::shared_ptr<torch::nn::Module>> stems;
  std::function<Flow(const Flow&)> forward;
  if (options().stem == Stem::cifar) {
    const CellLayerOptions layers = {.channels = kStemMultiplier * options().cell_channels, .norm = options().norm};
    const auto stem = register_module("stem", make_stem(options().channels, layers));
    stems = {stem};
    forward = [stem](const Flow& x) { return Flow{stem->forward(x[0])}; };
  } else {
    stems = {list("stem0"), list("stem1")};
    forward = imagenet_stem(*stems[0], *stems[1], options());
  }
  if (module) stems.push_back(module);
  add_flow_block("stem", stems,
                 [forward = std::move(forward), then = std::move(then), channels = options().channels,
                  height = options().size, width = options().columns()](const Flow& x) {
                   check_images(x[0], channels);
                   check_size(x[0], height, width);
                   return then(forward(x));
                 });
}

void CellNetwork::add_auxiliary_head_after(int64_t cell) {
  if (!has_auxiliary_head_after(cell) || !holds_next_block()) return;
  const auto head = register_module("auxiliary_head",
                                    std::make_shared<AuxiliaryHead>(outputs_of(widths_, options(), cell), options()));
  add_flow_block("auxiliary_head", {head}, [head](Flow flow) {
    if (head->is_training()) flow.push_back(head->forward(flow[0]));
    return flow;
  });
}

}  // namespace tandem::models
