#include "tandem/models/network/mlp.h"

#include "tandem/layers/dropout.h"

namespace tandem::models {

using layers::ColumnLinear;
using layers::Dropout;
using layers::RowLinear;

Mlp::Mlp(const ModelOptions& options) : Backbone("Mlp", options, options.embedding > 0 ? options.embedding : kHidden) {
  const int64_t channels = options.channels, height = options.size, width = options.columns();
  const auto units = divide(options, "fc1", kHidden, "units");
  const auto add_activation = [&](const std::string& name) {
    return register_module(name, std::make_shared<memory::ActivationModule>(memory::activation_of(options.activation)));
  };
  if (holds_next_block()) {
    const auto act1 = add_activation("act1");
    const auto fc1 = register_module("fc1", std::make_shared<ColumnLinear>(channels * height * width, units,
                                                                           ColumnLinear::Options{.gathers = false}));
    const auto drop1 =
        register_module("drop1", std::make_shared<Dropout>(options.dropout, "drop1", Dropout::Divided{1, units}));
    add_block("fc1", {fc1, act1, drop1}, [=](const Tensor& images) {
      check_images(images, channels);
      check_size(images, height, width);
      return drop1->forward(act1->overwrite(fc1->forward(images.flatten(1))));
    });
    if (units.group().size() > 1) chain().blocks.back().output = {1, units.first(), units.total()};
  }
  if (holds_next_block()) {
    const auto act2 = add_activation("act2");
    const auto fc2 = register_module("fc2", std::make_shared<RowLinear>(units, kHidden, RowLinear::Options{}));
    const auto drop2 = register_module("drop2", std::make_shared<Dropout>(options.dropout, "drop2"));
    add_block("fc2", {fc2, act2, drop2},
              [=](const Tensor& hidden) { return drop2->forward(act2->overwrite(fc2->forward(hidden))); });
  }
  if (options.embedding > 0 && holds_next_block()) {
    const auto embedding =
        register_module("embedding", std::make_shared<Linear>(kHidden, options.embedding, /*bias=*/true));
    add_block("embedding", {embedding}, [=](const Tensor& hidden) { return embedding->forward(hidden); });
  }
  initialize(*this, options.seed);
}

}  // namespace tandem::models
