#include "tandem/models/model.h"

#include <algorithm>
#include <array>

#include "tandem/base/error.h"
#include "tandem/models/cells/bench_201_network.h"
#include "tandem/models/cells/genotype_network.h"
#include "tandem/models/network/flat.h"
#include "tandem/models/network/layers.h"
#include "tandem/models/network/mlp.h"
#include "tandem/models/network/resnet.h"
#include "tandem/models/network/vit.h"
#include "tandem/models/space.h"

namespace tandem::models {
namespace {

struct Entry {
  std::string_view name;
  std::shared_ptr<Backbone> (*make)(const ModelOptions&);
  int64_t (*features)(const ModelOptions&);  // of an image, before the embedding
  bool is_identity = false, has_norms = !is_identity;
  parallel::Axes axes = {parallel::Axis::tensor, parallel::Axis::pipeline};
  bool has_patches = false;
};

template <auto shape>
constexpr Entry resnet(std::string_view name) {
  return {name,
          [](const ModelOptions& options) -> std::shared_ptr<Backbone> {
            return std::make_shared<ResNet>(shape(), options);
          },
          [](const ModelOptions& options) { return ResNet::features(shape(), options); }};
}

template <auto shape>
constexpr Entry vit(std::string_view name) {
  return {.name = name,
          .make = [](const ModelOptions& options) -> std::shared_ptr<Backbone> {
            return std::make_shared<ViT>(shape(), options);
          },
          .features = [](const ModelOptions& options) { return ViT::features(shape(), options); },
          .has_patches = true};
}

std::shared_ptr<Backbone> make_mlp(const ModelOptions& options) { return std::make_shared<Mlp>(options); }
std::shared_ptr<Backbone> make_flat(const ModelOptions& options) { return std::make_shared<Flat>(options); }

int64_t hidden(const ModelOptions&) { return Mlp::kHidden; }
int64_t pixels(const ModelOptions& options) { return options.channels * options.size * options.columns(); }

Genotype genotype_of(const ModelOptions& options) {
  const auto* known = known_genotype(options.name);
  return known != nullptr ? *known : parse_genotype(options.name, "model");
}

std::shared_ptr<Backbone> make_cells(const ModelOptions& options) {
  return std::make_shared<GenotypeNetwork>(genotype_of(options), options);
}

int64_t cell_features(const ModelOptions& options) { return GenotypeNetwork::features(genotype_of(options), options); }

constexpr std::array<Entry, 9> kModels = {{resnet<resnet_glyph>("resnet_glyph"),
                                           resnet<resnet18>("resnet18"),
                                           resnet<resnet34>("resnet34"),
                                           resnet<resnet50>("resnet50"),
                                           vit<vit_tiny>("vit_tiny"),
                                           vit<vit_small>("vit_small"),
                                           vit<vit_base>("vit_base"),
                                           {"mlp", make_mlp, hidden, false, false},
                                           {"none", make_flat, pixels, true, false, {parallel::Axis::tensor}}}};

constexpr Entry kCells = {
    .name = "", .make = make_cells, .features = cell_features, .axes = {parallel::Axis::pipeline}};

std::shared_ptr<Backbone> make_bench_201(const ModelOptions& options) {
  return std::make_shared<Bench201Network>(parse_bench_201(options.name, "model"), options);
}

constexpr Entry kBench201 = {
    .name = "", .make = make_bench_201, .features = Bench201Network::features, .axes = {parallel::Axis::pipeline}};

const Space& space_in(const ModelOptions& options) {
  return space_of(std::string_view(options.name).substr(kSearchPrefix.size()));
}

std::shared_ptr<Backbone> make_supernet(const ModelOptions& options) {
  const auto& space = space_in(options);
  return space.skeleton->make(space, options);
}

int64_t supernet_features(const ModelOptions& options) {
  const auto& space = space_in(options);
  return space.skeleton->features(space, options);
}

constexpr Entry kSupernet = {.name = "", .make = make_supernet, .features = supernet_features, .axes = {}};

std::vector<std::string_view> all_names() {
  std::vector<std::string_view> names;
  for (const auto& model : kModels) names.push_back(model.name);
  const auto genotypes = genotype_names();
  names.insert(names.end(), genotypes.begin(), genotypes.end());
  return names;
}

std::string joined(std::span<const std::string_view> names) {
  std::string text;
  for (const auto name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

const Entry& entry_of(std::string_view name) {
  const auto model = std::ranges::find(kModels, name, &Entry::name);
  if (model != kModels.end()) return *model;
  if (is_supernet(name)) return kSupernet;
  if (is_bench_201(name)) return kBench201;
  if (has_cells(name)) return kCells;
  throw SettingsError("model is '" + std::string(name) + "', wanted one of " + joined(model_names()));
}

using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

/// Wherever they are below `parent`. Whoever else holds them holds no numbers any more.
void remove_modules(torch::nn::Module& parent, const Modules& gone) {
  for (const auto& child : parent.named_children()) {
    if (std::ranges::find(gone, child.value()) == gone.end()) {
      remove_modules(*child.value(), gone);
      continue;
    }
    const at::NoGradGuard no_grad;
    for (auto& parameter : child.value()->parameters()) parameter.set_data(at::empty({0}, parameter.options()));
    for (auto& buffer : child.value()->buffers()) buffer.set_data(at::empty({0}, buffer.options()));
    parent.unregister_module(child.key());
  }
}

/// A block of those of its parts whose `places` in the whole one are held.
template <class IsHeld>
memory::Block cut(const memory::Block& block, const std::vector<int64_t>& places, const IsHeld& is_held) {
  TORCH_CHECK_VALUE(block.parts.size() == places.size(), "blocks: ", block.name, " runs as a whole, wanted its parts");
  std::vector<memory::Block> parts;
  for (size_t i = 0; i < places.size(); ++i) {
    if (is_held(places[i])) parts.push_back(block.parts[i]);
  }
  auto some = memory::make_block(block.name, std::move(parts));
  if (is_held(places.back())) some.output = block.output;
  return some;
}

void check_range(const char* setting, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw SettingsError(std::string(setting) + " is " + std::to_string(value) + ", wanted " + std::to_string(low) + ".." +
                      std::to_string(high));
}

}  // namespace

std::span<const std::string_view> model_names() {
  static const auto names = all_names();
  return names;
}

bool has_cells(std::string_view name) {
  return known_genotype(name) != nullptr || name.starts_with("Genotype(") || is_supernet(name) || is_bench_201(name);
}

bool is_bench_201(std::string_view name) {
  if (!is_supernet(name)) return name.starts_with('|');
  const auto* space = find_space(name.substr(kSearchPrefix.size()));
  return space != nullptr && space->skeleton == &bench_201_skeleton();
}

bool is_supernet(std::string_view name) { return name.starts_with(kSearchPrefix); }

bool is_identity(std::string_view name) { return entry_of(name).is_identity; }
bool has_norms(std::string_view name) { return entry_of(name).has_norms; }
bool has_patches(std::string_view name) { return entry_of(name).has_patches; }

int64_t dim_of(const ModelOptions& options) {
  return options.embedding > 0 ? options.embedding : entry_of(options.name).features(options);
}

parallel::Axes axes_of(std::string_view name) { return entry_of(name).axes; }

std::shared_ptr<Backbone> make(const ModelOptions& options) {
  const auto& model = entry_of(options.name);
  check_range("the images' channels", options.channels, 1, 4096);
  check_range("size", options.size, 1, 4096);
  check_range("the images' width", options.width, 0, 4096);
  check_range("embedding", options.embedding, 0, 65536);
  check_range("ghost", options.ghost, 1, 1'000'000'000);
  check_range("cells", options.cells, 1, 1000);
  check_range("cell_channels", options.cell_channels, 2, 4096);
  check_range("patch", options.patch, 1, 1024);
  check_range("heads", options.heads, 0, 1024);
  if (options.tensor != nullptr && options.tensor->size() > 1 && !model.axes.has(parallel::Axis::tensor)) {
    throw SettingsError("tensor is " + std::to_string(options.tensor->size()) + " with layer stem of " + options.name +
                        ", which is not divided, wanted 1");
  }
  auto backbone = model.make(options);
  for (const auto& range : options.blocks) {
    check_range("first block", range.first, 0, backbone->num_blocks() - 1);
    check_range("last block", range.last, range.first, backbone->num_blocks() - 1);
  }
  for (const auto& module : backbone->modules(/*include_self=*/false)) {
    if (auto* layer = dynamic_cast<Layer*>(module.get())) layer->round_products(options.products);
    if (auto* norm = dynamic_cast<Normalization*>(module.get())) {
      norm->share_statistics(options.ranks);
      norm->normalize_by(options.ghost);
    }
  }
  return backbone;
}

memory::Chain Backbone::chain(const BlockRange& range) const {
  TORCH_INTERNAL_ASSERT(blocks_held_.size() == chain_.blocks.size(), "a model of other blocks than those it counts");
  memory::Chain some;
  for (size_t i = 0; i < blocks_held_.size(); ++i) {
    const auto& [number, places] = blocks_held_[i];
    const auto& block = chain_.blocks[i];
    if (!range.holds(number)) continue;
    const auto is_held = [&](int64_t part) { return range.holds(number, part); };
    if (std::ranges::all_of(places, is_held)) {
      some.blocks.push_back(block);
    } else if (std::ranges::any_of(places, is_held)) {
      some.blocks.push_back(cut(block, places, is_held));
    }
  }
  return some;
}

void Backbone::add_block(std::string name, std::vector<std::shared_ptr<torch::nn::Module>> modules,
                         std::function<Tensor(const Tensor&)> forward) {
  chain_.blocks.push_back(memory::make_block(std::move(name), std::move(modules), std::move(forward)));
}

void Backbone::add_block(std::string name, std::vector<memory::Block> parts) {
  auto& held = blocks_held_.back();
  std::vector<memory::Block> here;
  Modules gone;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    const auto is_held = [&](const BlockRange& range) { return range.holds(held.number, place); };
    if (held_.empty() || std::ranges::any_of(held_, is_held)) {
      here.push_back(std::move(parts[i]));
      held.parts.push_back(place);
    } else {
      gone.insert(gone.end(), parts[i].modules.begin(), parts[i].modules.end());
    }
  }
  TORCH_CHECK_VALUE(!here.empty(), "blocks: of ", name, " no part is held, wanted one of its ", parts.size());
  if (!gone.empty()) remove_modules(*this, gone);
  chain_.blocks.push_back(memory::make_block(std::move(name), std::move(here)));
}

void Backbone::check_images(const Tensor& images, int64_t channels) {
  TORCH_CHECK_VALUE(images.dim() == 4 && images.size(1) == channels && images.size(2) > 0 && images.size(3) > 0,
                    "images: shape is ", images.sizes(), ", wanted [N, ", channels,
                    ", H, W]: build the model with as many channels as the images have");
  TORCH_CHECK_VALUE(images.is_floating_point(), "images: type is ", images.scalar_type(),
                    ", wanted a floating one: convert the pixels first");
}

void Backbone::check_size(const Tensor& images, int64_t height, int64_t width) {
  TORCH_CHECK_VALUE(images.size(2) == height && images.size(3) == width, "images: shape is ", images.sizes(),
                    ", wanted ", height, " x ", width, " pixels: build the model with the images' size");
}

}  // namespace tandem::models
