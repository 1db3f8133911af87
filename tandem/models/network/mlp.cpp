#include "tandem/models/network/mlp.h"

namespace tandem::models {
namespace {

constexpr int64_t kHidden = 256;

}  // namespace

Mlp::Mlp(const ModelOptions& options)
    : Backbone("Mlp", options.channels, options.embedding > 0 ? options.embedding : kHidden) {
  const int64_t channels = options.channels, height = options.size, width = options.columns();
  const auto add = [&](const std::string& name, int64_t in, int64_t out) {
    return register_module(name, std::make_shared<Linear>(in, out, /*bias=*/true));
  };
  const auto fc1 = add("fc1", channels * height * width, kHidden), fc2 = add("fc2", kHidden, kHidden);
  add_block("fc1", {fc1}, [=](const Tensor& images) {
    check_images(images, channels);
    check_size(images, height, width);
    return fc1->forward(images.flatten(1)).relu_();
  });
  add_block("fc2", {fc2}, [=](const Tensor& hidden) { return fc2->forward(hidden).relu_(); });
  if (options.embedding > 0) {
    const auto embedding = add("embedding", kHidden, options.embedding);
    add_block("embedding", {embedding}, [=](const Tensor& hidden) { return embedding->forward(hidden); });
  }
  initialize(*this, options.seed);
}

}  // namespace tandem::models
