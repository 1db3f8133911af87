#include "tandem/models/network/layers.h"

#include <cmath>

#include "tandem/base/rng.h"

namespace tandem::models {

Conv2d::Conv2d(const Options& options) : Layer("Conv2d"), options_(options) {
  // Same memory format as oneDNN's channels-last gradient, so that a step needs no reordering.
  weight_ = register_parameter(
      "weight", at::empty({options.out, options.in / options.groups, options.kernel.height, options.kernel.width},
                          at::TensorOptions(), at::MemoryFormat::ChannelsLast));
  if (options.bias) bias_ = register_parameter("bias", at::empty({options.out}));
}

Tensor Conv2d::forward(const Tensor& input) const {
  return at::conv2d(factor(input), factor(weight_), factor(bias_), options_.stride.list(), options_.padding.list(),
                    options_.dilation.list(), options_.groups);
}

void Conv2d::initialize(uint64_t seed, const std::string& name) {
  const at::NoGradGuard no_grad;
  const auto values = at::empty(weight_.sizes(), weight_.options());  // drawn by index, whatever the memory format
  const auto stream = stream_of(name + ".weight");
  if (options_.draw == Draw::fan_in) {
    fill_uniform_(values, 1 / std::sqrt(static_cast<double>(weight_[0].numel())), seed, stream);
  } else {
    const auto fan_out = static_cast<double>(options_.out * weight_[0][0].numel());
    fill_normal_(values, options_.gain * std::sqrt(2.0 / fan_out), seed, stream);
  }
  weight_.copy_(values);
  if (bias_.defined()) bias_.zero_();
}

/// Does not use Tensor::contiguous(): with one channel it would do nothing, and the following layers would take the
/// image for channels first.
Tensor laid_out(const Tensor& images) {
  const auto type = images.scalar_type();
  if (!images.device().is_cpu() || (type != at::kFloat && type != at::kBFloat16)) return images;
  const int64_t channels = images.size(1), height = images.size(2), width = images.size(3);
  auto copy = at::empty_strided(images.sizes(), {channels * height * width, 1, channels * width, channels},
                                images.options().requires_grad(false));
  return copy.copy_(images);
}

Linear::Linear(int64_t in, int64_t out, bool bias) : Layer("Linear") {
  weight_ = register_parameter("weight", at::empty({out, in}));
  if (bias) bias_ = register_parameter("bias", at::empty({out}));
}

Tensor Linear::forward(const Tensor& input) const { return at::linear(factor(input), factor(weight_), factor(bias_)); }

void Linear::initialize(uint64_t seed, const std::string& name) {
  const at::NoGradGuard no_grad;
  const double bound = 1.0 / std::sqrt(static_cast<double>(weight_.size(1)));
  fill_uniform_(weight_, bound, seed, stream_of(name + ".weight"));
  if (bias_.defined()) fill_uniform_(bias_, bound, seed, stream_of(name + ".bias"));
}

void Normalization::zero_weight() {
  const at::NoGradGuard no_grad;
  if (auto* weight = named_parameters(/*recurse=*/false).find("weight")) weight->zero_();
}

}  // namespace tandem::models
