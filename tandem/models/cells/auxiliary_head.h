#pragma once
#include <torch/nn/module.h>

#include <memory>

#include "tandem/models/network/layers.h"

namespace tandem::models {

/// What a second classifier sees of the middle of a network while it is trained, with the parameters' names of
/// quark0/darts: ReLU, average pooling to 2 x 2, 1 x 1 convolution to 128 channels, norm, ReLU, 2 x 2 convolution to
/// 768, norm unless the stem is that for large images, ReLU. Source: Szegedy et al. 2015, Going Deeper with
/// Convolutions (arXiv:1409.4842), section 5; sizes: the code of Liu, Simonyan, Yang 2019, DARTS.
class AuxiliaryHead : public torch::nn::Module {
 public:
  static constexpr int64_t kFeatures = 768;

  /// `in`: channels of the values. `options`: their norm and stem count.
  AuxiliaryHead(int64_t in, const ModelOptions& options);

  ///   values   [N, in, H, W], sides of 2 or more
  ///   returns  [N, kFeatures]
  Tensor forward(const Tensor& values) const;

 private:
  std::shared_ptr<Conv2d> narrow_, whole_;
  std::shared_ptr<Normalization> narrow_norm_, whole_norm_;  // the last may be null
};

}  // namespace tandem::models
