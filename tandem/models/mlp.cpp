#include "tandem/models/mlp.h"

namespace tandem::models {
namespace {

constexpr int64_t kHidden = 256;

}  // namespace

Mlp::Mlp(const ModelOptions& options)
    : Backbone("Mlp", options.channels, options.embedding > 0 ? options.embedding : kHidden), size_(options.size) {
  const int64_t pixels = options.channels * options.size * options.size;
  fc1_ = register_module("fc1", std::make_shared<Linear>(pixels, kHidden, /*bias=*/true));
  fc2_ = register_module("fc2", std::make_shared<Linear>(kHidden, kHidden, /*bias=*/true));
  if (options.embedding > 0) {
    embedding_ = register_module("embedding", std::make_shared<Linear>(kHidden, options.embedding, /*bias=*/true));
  }
  initialize(*this, options.seed);
}

Tensor Mlp::forward(const Tensor& images) {
  check_images(images);
  check_size(images, size_);
  const auto hidden = fc2_->forward(fc1_->forward(images.flatten(1)).relu_()).relu_();
  return embedding_ ? embedding_->forward(hidden) : hidden;
}

}  // namespace tandem::models
