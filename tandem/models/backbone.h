#pragma once
#include <torch/nn/module.h>

#include "tandem/base/tensor.h"
#include "tandem/models/model.h"

namespace tandem::models {

/// A network from images to embeddings, which are the input of a classifier's head.
class Backbone : public torch::nn::Module {
 public:
  Backbone(std::string name, int64_t channels, int64_t dim)
      : torch::nn::Module(std::move(name)), channels_(channels), dim_(dim) {}

  ///   images   [N, channels(), H, W] floating; N = 0 is allowed: a rank without samples still takes part in backward,
  ///            and all its gradients are zero
  ///   returns  [N, dim()] of the images' type (of autocast's type if autocast is on)
  /// Throws c10::ValueError (another shape; one value per channel with batch normalisation in training).
  virtual Tensor forward(const Tensor& images) = 0;

  int64_t channels() const { return channels_; }
  int64_t dim() const { return dim_; }

 protected:
  /// Every forward() must call this first.
  void check_images(const Tensor& images) const;

  /// For models that are built for one size of images.
  static void check_size(const Tensor& images, int64_t height, int64_t width);

 private:
  int64_t channels_, dim_;
};

}  // namespace tandem::models
