#pragma once
#include <torch/nn/module.h>

#include <algorithm>

#include "tandem/base/tensor.h"
#include "tandem/memory/chain.h"
#include "tandem/models/model.h"

namespace tandem::models {

/// Freezes each parameter whose name begins with one of `prefixes`, such as "layer1" or "conv1.weight": it requires no
/// gradient any more. Norms of a batch in a frozen layer still use the statistics of the batch, and move the running
/// ones. Throws SettingsError, naming `freeze`, if no parameter begins with a prefix, or if a prefix is empty.
void freeze(torch::nn::Module& model, std::span<const std::string> prefixes);

/// The same where the model is only a part of one (ModelOptions::blocks), whose other parts may have what is named; and
/// the check for the names of all parts.
void freeze_here(torch::nn::Module& model, std::span<const std::string> prefixes);
void check_frozen(std::span<const std::string> prefixes, const std::vector<std::string>& names);

/// Freezes all of them.
void freeze(torch::nn::Module& module);

/// A network from images to embeddings, which are the input of a classifier's head.
class Backbone : public torch::nn::Module {
 public:
  Backbone(std::string name, const ModelOptions& options, int64_t dim)
      : torch::nn::Module(std::move(name)), channels_(options.channels), dim_(dim), held_(options.blocks) {}

  /// Of a model that is built as a whole (ModelOptions::blocks).
  ///   images   [N, channels(), H, W] floating; N = 0 is allowed: a rank without samples still takes part in backward,
  ///            and all its gradients are zero
  ///   returns  [N, dim()] of the images' type (of ModelOptions::products if given); auxiliary features are dropped
  /// Throws c10::ValueError (another shape; one value per channel with batch normalisation in training).
  Tensor forward(Tensor images) const { return memory::run(chain_, memory::Flow{std::move(images)})[0]; }

  /// The network as blocks, in their order; forward() runs these. In training it gives the features, and then, where
  /// there are any, the auxiliary ones, [N, auxiliary_dim()]. A copy keeps the modules alive.
  const memory::Chain& chain() const { return chain_; }
  memory::Chain& chain() { return chain_; }

  /// Those of its blocks, and of their parts, that are among these of the whole model.
  memory::Chain chain(const BlockRange& range) const;

  int64_t channels() const { return channels_; }
  int64_t dim() const { return dim_; }
  int64_t auxiliary_dim() const { return auxiliary_dim_; }  // 0: there are none
  int64_t num_blocks() const { return num_blocks_; }        // of the whole model

 protected:
  void set_auxiliary_dim(int64_t dim) { auxiliary_dim_ = dim; }

  /// Whether the next block is one of ModelOptions::blocks; asked once a block, in their order. If not, none of its
  /// modules is made.
  bool holds_next_block() {
    const int64_t block = num_blocks_++;
    const bool holds =
        held_.empty() || std::ranges::any_of(held_, [&](const auto& range) { return range.holds(block); });
    if (holds) blocks_held_.push_back({block, {}});
    return holds;
  }

  /// Adds a block to the chain. `forward` must hold what it uses by value, and never this object. The first block's
  /// must call check_images().
  void add_block(std::string name, std::vector<std::shared_ptr<torch::nn::Module>> modules,
                 std::function<Tensor(const Tensor&)> forward);
  /// The same for a block that can be cut. Of parts that are not among ModelOptions::blocks, the modules leave the
  /// model, with the memory of their parameters and buffers.
  void add_block(std::string name, std::vector<memory::Block> parts);

  static void check_images(const Tensor& images, int64_t channels);

  /// For models that are built for one size of images.
  static void check_size(const Tensor& images, int64_t height, int64_t width);

 private:
  int64_t channels_, dim_, auxiliary_dim_ = 0;
  std::vector<BlockRange> held_;
  struct Held {
    int64_t number;
    std::vector<int64_t> parts;  // those that are here, where the block has any
  };

  int64_t num_blocks_ = 0;
  std::vector<Held> blocks_held_;  // of the chain
  memory::Chain chain_;
};

}  // namespace tandem::models
