#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tandem/models/backbone.h"
#include "tandem/models/network/layers.h"

namespace tandem::models {

/// One residual block: activation(branch(x) + shortcut(x)). The branch is two 3x3 convolutions (basic), or 1x1, 3x3,
/// 1x1 with four times the width in the output (bottleneck; the stride is in the 3x3, as in torchvision).
///
///   x ─▶ [conv] ─────────────────────────────────────────────▶ [norm]
///   └──▶ conv ─▶ norm, activation ─▶ ... conv ─▶ norm ─▶ + ◀─────┘     then activation
///
/// Where the width is divided, so are the last two convolutions, one by its outputs and one by its inputs, and the norm
/// between them: one all_reduce forward and one backward.
class ResidualBlock : public torch::nn::Module {
 public:
  struct Options {
    int64_t in;
    layers::Division width;
    int64_t stride;
    bool bottleneck;
    Norm norm;
    const memory::Activation* activation;
    double gain;  // of the branch's last convolution; below 1 if there is no normalisation
  };
  explicit ResidualBlock(const Options& options);

  /// It as the parts of a chain's block (memory/chain.h): convolutions, and norms with what follows them. A norm that
  /// overwrites its input is in the part of its convolution. The value of a flow is first, the shortcut second.
  std::vector<memory::Block> parts() const;

  /// The norm at the end of the branch starts at 0 (Goyal et al. 2017, arXiv:1706.02677, section 5.1).
  void zero_gamma() { branch_.back().norm->zero_weight(); }

 private:
  struct Step {
    std::shared_ptr<Conv2d> conv;
    std::shared_ptr<Normalization> norm;
  };
  std::function<memory::Flow(const memory::Flow&)> last_norm() const;

  std::vector<Step> branch_;
  Step shortcut_;  // empty if the shape does not change
};

/// The parameters in which ResNets differ.
struct ResNetShape {
  struct Stage {
    int64_t width, blocks, stride;
  };
  int64_t stem_channels, stem_kernel;
  bool stem_pool;  // 3x3 max pooling, stride 2, after the stem
  bool bottleneck;
  bool flatten;  // flatten the features instead of averaging them over all places
  std::vector<Stage> stages;
};

/// He et al. 2015, Deep residual learning for image recognition (arXiv:1512.03385), in torchvision's form with its
/// state-dict names. An embedding replaces the last layer (`fc`): `embedding.weight` and `embedding_bn`.
///
///   images -> conv1 bn1 activation [maxpool] -> layer1 .. layerK -> mean over H, W, or flat -> [embedding
///   embedding_bn] blocks    stem                        layer1.0 ...        head
///
/// On a CPU, float32 and bfloat16 run channels last, so that oneDNN needs no reordering between layers.
class ResNet : public Backbone {
 public:
  ResNet(const ResNetShape& shape, const ModelOptions& options);

  /// Of an image, before the embedding.
  static int64_t features(const ResNetShape& shape, const ModelOptions& options);

 private:
  void add_stem(const ResNetShape& shape, const ModelOptions& options);
  void add_head(const ResNetShape& shape, const ModelOptions& options);
};

/// resnet_glyph is for images of about 32 pixels: 3x3 stem of stride 2, one basic block each
/// of 32, 64 (stride 2), 128 (stride 2) channels, flat; 0.57 M parameters at size 32 with embedding 128.
const ResNetShape& resnet18();
const ResNetShape& resnet34();
const ResNetShape& resnet50();
const ResNetShape& resnet_glyph();

}  // namespace tandem::models
