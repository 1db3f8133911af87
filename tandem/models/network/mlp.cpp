#include "tandem/models/network/mlp.h"

namespace tandem::models {
namespace {

constexpr int64_t kHidden = 256;

}  // namespace

Mlp::Mlp(const ModelOptions& options)
    : Backbone("Mlp", options.channels, options.embedding > 0 ? options.embedding : kHidden),
      height_(options.size),
      width_(options.columns()) {
  const int64_t pixels = options.channels * height_ * width_;
  fc1_ = register_module("fc1", std::make_shared<Linear>(pixels, kHidden, /*bias=*/true));
  fc2_ = register_module("fc2", std::make_shared<Linear>(kHidden, kHidden, /*bias=*/true));
  if (options.embedding > 0) {
    embedding_ = register_module("embedding", std::make_shared<Linear>(kHidden, options.embedding, /*bias=*/true));
  }
  initialize(*this, options.seed);
}

Tensor Mlp::forward(const Tensor& images) {
  check_images(images);
  check_size(images, height_, width_);
  const auto hidden = fc2_->forward(fc1_->forward(images.flatten(1)).relu_()).relu_();
  return embedding_ ? embedding_->forward(hidden) : hidden;
}

}  // namespace tandem::models
