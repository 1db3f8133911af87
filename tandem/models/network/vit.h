#pragma once
#include <memory>
#include <optional>

#include "tandem/layers/division.h"
#include "tandem/models/backbone.h"

namespace tandem::models {

/// The parameters in which vision transformers differ.
struct ViTShape {
  int64_t width, depth, heads;
};

/// Dosovitskiy et al. 2021, An image is worth 16x16 words (arXiv:2010.11929), in timm's form with its state-dict names.
/// An embedding replaces the last layer (`head`): `embedding.weight` and `embedding_bn`.
///
///   images -> patch_embed: a token [D] a patch, cls_token before them; + pos_embed      [N, 1 + patches, D]
///          -> blocks.0 .. blocks.L-1, each x + attn(norm1(x)), x + mlp(norm2(x))        can be cut between the two
///          -> head: norm of the first token -> [embedding embedding_bn]
///
/// Over the ranks of ModelOptions::tensor attention is divided by heads, mlp by hidden units: two all_reduces a block
/// forward, two backward. The rest is whole. With divides_tokens each rank has some of the tokens from patch_embed to
/// the last block.
class ViT : public Backbone {
 public:
  /// Throws SettingsError, naming `size`, `heads`: sides that the patch does not divide; heads that do not divide the
  /// width.
  ViT(const ViTShape& shape, const ModelOptions& options);

  /// Of an image, before the embedding.
  static int64_t features(const ViTShape& shape, const ModelOptions& options);

 private:
  void add_stem(const ViTShape& shape);
  void add_block(const ViTShape& shape, int64_t number);
  void add_head(const ViTShape& shape);

  int64_t patches() const { return options_.size / options_.patch * (options_.columns() / options_.patch); }
  void add_tokens_block(std::string name, std::vector<memory::Block> parts);

  ModelOptions options_;
  std::optional<layers::Division> tokens_;  // over several ranks
  std::shared_ptr<torch::nn::Module> blocks_;
};

const ViTShape& vit_tiny();
const ViTShape& vit_small();
const ViTShape& vit_base();

}  // namespace tandem::models
