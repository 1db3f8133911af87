#include "tandem/models/network/mlp.h"

#include "tandem/models/network/dropout.h"

namespace tandem::models {
Mlp::Mlp(const ModelOptions& options) : Backbone("Mlp", options, options.embedding > 0 ? options.embedding : kHidden) {
  const int64_t channels = options.channels, height = options.size, width = options.columns();
  const auto add = [&](const std::string& name, int64_t in, int64_t out) {
    return register_module(name, std::make_shared<Linear>(in, out, /*bias=*/true));
  };
  const auto add_activation = [&](const std::string& name) {
    return register_module(name, std::make_shared<memory::ActivationModule>(memory::activation_of(options.activation)));
  };
  const auto drop = [&](const std::string& name) {
    return register_module(name, std::make_shared<Dropout>(options.dropout, name));
  };
  if (holds_next_block()) {
    const auto act1 = add_activation("act1");
    const auto fc1 = add("fc1", channels * height * width, kHidden);
    const auto drop1 = drop("drop1");
    add_block("fc1", {fc1, act1, drop1}, [=](const Tensor& images) {
      check_images(images, channels);
      check_size(images, height, width);
      return drop1->forward(act1->overwrite(fc1->forward(images.flatten(1))));
    });
  }
  if (holds_next_block()) {
    const auto act2 = add_activation("act2");
    const auto fc2 = add("fc2", kHidden, kHidden);
    const auto drop2 = drop("drop2");
    add_block("fc2", {fc2, act2, drop2},
              [=](const Tensor& hidden) { return drop2->forward(act2->overwrite(fc2->forward(hidden))); });
  }
  if (options.embedding > 0 && holds_next_block()) {
    const auto embedding = add("embedding", kHidden, options.embedding);
    add_block("embedding", {embedding}, [=](const Tensor& hidden) { return embedding->forward(hidden); });
  }
  initialize(*this, options.seed);
}

}  // namespace tandem::models
