#include "tandem/models/cells/auxiliary_head.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <string>

namespace tandem::models {
namespace {

constexpr int64_t kMiddle = 128, kSide = 2, kWindow = 5;

/// Two windows along each side: of 5, of half of the image where that is more, or of what it has.
Tensor pooled(const Tensor& values) {
  std::array<int64_t, 2> window{}, stride{};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t side = values.size(static_cast<int64_t>(i) + 2);
    window[i] = std::min(std::max(kWindow, (side + 1) / 2), side - 1);
    stride[i] = side - window[i];
  }
  return at::avg_pool2d(values, window, stride);
}

}  // namespace

AuxiliaryHead::AuxiliaryHead(int64_t in, const ModelOptions& options) : torch::nn::Module("AuxiliaryHead") {
  const auto list = register_module("features", std::make_shared<torch::nn::Module>("Sequential"));
  const auto add = [&](int number, auto module) { return list->register_module(std::to_string(number), module); };
  const auto conv = [](int64_t from, int64_t to, int64_t kernel) {
    return std::make_shared<Conv2d>(Conv2d::Options{.in = from, .out = to, .kernel = kernel, .draw = Draw::fan_in});
  };
  narrow_ = add(2, conv(in, kMiddle, 1));
  narrow_norm_ = add(3, make_normalization(options.norm, kMiddle));
  whole_ = add(5, conv(kMiddle, kFeatures, kSide));
  if (options.stem == Stem::cifar) whole_norm_ = add(6, make_normalization(options.norm, kFeatures));
}

Tensor AuxiliaryHead::forward(const Tensor& values) const {
  const auto narrow = narrow_norm_->forward(narrow_->forward(pooled(values.relu())), Then::activation);
  const auto whole = whole_->forward(narrow);
  return (whole_norm_ ? whole_norm_->forward(whole, Then::activation) : whole.relu()).flatten(1);
}

}  // namespace tandem::models
