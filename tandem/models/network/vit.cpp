#include "tandem/models/network/vit.h"

#include <ATen/ATen.h>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/comm/region.h"
#include "tandem/layers/dropout.h"
#include "tandem/layers/transformer.h"
#include "tandem/models/positions.h"

namespace tandem::models {
namespace {

using memory::Block;
using memory::Flow;

constexpr int64_t kExpansion = 4;  // of the width, inside a block
constexpr double kPositionDeviation = 0.02, kTokenDeviation = 1e-6;

/// The parameters that belong to no layer: the model has them under their own names.
class Tokens : public torch::nn::Module {
 public:
  Tokens(int64_t patches, int64_t width) : torch::nn::Module("Tokens") {
    first_ = register_parameter("cls_token", at::empty({1, 1, width}));
    positions_ = register_parameter(kPositions, at::empty({1, 1 + patches, width}));
  }

  /// [N, patches, width] to [N, 1 + patches, width].
  Tensor forward(const Tensor& patches) const {
    const auto first = first_.expand({patches.size(0), 1, patches.size(2)});
    return at::cat({first, patches}, 1) + positions_;
  }

  void initialize(uint64_t seed) const {
    const at::NoGradGuard no_grad;
    fill_normal_(first_, kTokenDeviation, seed, stream_of("cls_token"));
    fill_normal_(positions_, kPositionDeviation, seed, stream_of(kPositions));
  }

 private:
  Tensor first_, positions_;
};

int64_t heads_of(const ViTShape& shape, const ModelOptions& options) {
  return options.heads > 0 ? options.heads : shape.heads;
}

const ModelOptions& checked(const ViTShape& shape, const ModelOptions& options) {
  for (const auto side : {options.size, options.columns()}) {
    if (side % options.patch == 0) continue;
    throw SettingsError("size is " + std::to_string(side) + " with patch=" + std::to_string(options.patch) +
                        ", wanted a multiple of it");
  }
  if (shape.width % heads_of(shape, options) != 0) {
    throw SettingsError("heads is " + std::to_string(options.heads) + ", wanted a divisor of " +
                        std::to_string(shape.width) + ", the width of " + options.name);
  }
  return options;
}

}  // namespace

ViT::ViT(const ViTShape& shape, const ModelOptions& options)
    : Backbone("ViT", checked(shape, options), options.embedding > 0 ? options.embedding : features(shape, options)),
      options_(options) {
  if (options.divides_tokens && options.tensor != nullptr && options.tensor->size() > 1) {
    tokens_ = divide(options, "patch_embed", 1 + patches(), "tokens");
  }
  if (holds_next_block()) add_stem(shape);
  for (int64_t i = 0; i < shape.depth; ++i) {
    if (holds_next_block()) add_block(shape, i);
  }
  if (holds_next_block()) add_head(shape);
  initialize(*this, options.seed);
}

int64_t ViT::features(const ViTShape& shape, const ModelOptions& /*options*/) { return shape.width; }

void ViT::add_stem(const ViTShape& shape) {
  const int64_t channels = options_.channels, height = options_.size, width = options_.columns();
  const auto tokens = std::make_shared<Tokens>(patches(), shape.width);
  tokens->initialize(options_.seed);
  for (const auto& entry : tokens->named_parameters()) register_parameter(entry.key(), entry.value());
  const auto embed = register_module("patch_embed", std::make_shared<torch::nn::Module>("PatchEmbed"));
  const auto proj = embed->register_module("proj", std::make_shared<Conv2d>(Conv2d::Options{.in = channels,
                                                                                            .out = shape.width,
                                                                                            .kernel = options_.patch,
                                                                                            .stride = options_.patch,
                                                                                            .bias = true,
                                                                                            .draw = Draw::fan_in}));
  Block block = {.name = {}, .modules = {embed, tokens}, .forward = {}};
  block.forward = [=, own = tokens_](const Flow& images) {
    check_images(images[0], channels);
    check_size(images[0], height, width);
    const auto all = tokens->forward(proj->forward(laid_out(images[0])).flatten(2).transpose(1, 2));
    return Flow{own ? comm::scatter_to_region(all, own->group(), 1, own->counts()).contiguous() : all};
  };
  add_tokens_block("patch_embed", {std::move(block)});
}

/// That gives tokens.
void ViT::add_tokens_block(std::string name, std::vector<Block> parts) {
  Backbone::add_block(std::move(name), std::move(parts));
  if (tokens_) chain().blocks.back().output = {1, tokens_->first(), tokens_->total()};
}

void ViT::add_block(const ViTShape& shape, int64_t number) {
  if (!blocks_) blocks_ = register_module("blocks", std::make_shared<torch::nn::Module>("Sequential"));
  const auto name = std::to_string(number);
  const auto block = blocks_->register_module(name, std::make_shared<torch::nn::Module>("Block"));
  const auto heads = divide(options_, "blocks." + name + ".attn", heads_of(shape, options_), "heads");
  auto* const group = tokens_ ? &heads.group() : nullptr;
  const auto norm1 = block->register_module("norm1", std::make_shared<layers::LayerNorm>(shape.width, group));
  const auto attention =
      block->register_module("attn", std::make_shared<layers::Attention>(shape.width, heads, tokens_));
  const auto norm2 = block->register_module("norm2", std::make_shared<layers::LayerNorm>(shape.width, group));
  const auto mlp = block->register_module(
      "mlp",
      std::make_shared<layers::FeedForward>(shape.width, layers::Division(heads.group(), kExpansion * shape.width),
                                            memory::activation_of(options_.activation), tokens_));
  std::vector<Block> parts(2);
  parts[0].modules = {norm1, attention};
  parts[0].forward = [=](const Flow& x) { return Flow{x[0] + attention->forward(norm1->forward(x[0]))}; };
  parts[1].modules = {norm2, mlp};
  parts[1].forward = [=](const Flow& x) { return Flow{x[0] + mlp->forward(norm2->forward(x[0]))}; };
  add_tokens_block("blocks." + name, std::move(parts));
}

void ViT::add_head(const ViTShape& shape) {
  const auto norm = register_module("norm", std::make_shared<layers::LayerNorm>(shape.width));
  const auto dropout = register_module("dropout", std::make_shared<layers::Dropout>(options_.dropout, "dropout"));
  const auto first = [=, own = tokens_](const Tensor& x) {
    const auto all = own ? comm::gather_from_region(x, own->group(), 1, own->counts()) : x;
    return dropout->forward(norm->forward(all.select(1, 0)));
  };
  if (options_.embedding == 0) return Backbone::add_block("head", {norm, dropout}, first);
  const auto embedding = register_module(
      "embedding", std::make_shared<Linear>(shape.width, options_.embedding, /*bias=*/options_.norm == Norm::none));
  const auto bn = register_module("embedding_bn", make_normalization(options_.norm, options_.embedding,
                                                                     memory::activation_of(options_.activation)));
  Backbone::add_block("head", {norm, dropout, embedding, bn},
                      [=](const Tensor& x) { return bn->forward(embedding->forward(first(x))); });
}

const ViTShape& vit_tiny() {
  static const ViTShape shape{.width = 192, .depth = 12, .heads = 3};
  return shape;
}

const ViTShape& vit_small() {
  static const ViTShape shape{.width = 384, .depth = 12, .heads = 6};
  return shape;
}

const ViTShape& vit_base() {
  static const ViTShape shape{.width = 768, .depth = 12, .heads = 12};
  return shape;
}

}  // namespace tandem::models
