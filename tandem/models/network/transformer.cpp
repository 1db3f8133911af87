#include "tandem/models/network/transformer.h"

#include <ATen/ATen.h>

#include "tandem/base/rng.h"

namespace tandem::models {
namespace {

constexpr double kProjectionDeviation = 0.02;

}  // namespace

LayerNorm::LayerNorm(int64_t channels, double epsilon) : Layer("LayerNorm"), epsilon_(epsilon) {
  weight_ = register_parameter("weight", at::empty({channels}));
  bias_ = register_parameter("bias", at::empty({channels}));
}

Tensor LayerNorm::forward(const Tensor& input) const {
  return at::layer_norm(input, weight_.sizes(), weight_, bias_, epsilon_);
}

void LayerNorm::initialize(uint64_t /*seed*/, const std::string& /*name*/) {
  const at::NoGradGuard no_grad;
  weight_.fill_(1);
  bias_.zero_();
}

void Projection::initialize(uint64_t seed, const std::string& name) {
  const at::NoGradGuard no_grad;
  fill_normal_(weight(), kProjectionDeviation, seed, stream_of(name + ".weight"));
  bias().zero_();
}

Attention::Attention(int64_t width, int64_t heads) : torch::nn::Module("Attention"), heads_(heads) {
  qkv_ = register_module("qkv", std::make_shared<Projection>(width, 3 * width));
  proj_ = register_module("proj", std::make_shared<Projection>(width, width));
}

Tensor Attention::forward(const Tensor& input) const {
  const auto images = input.size(0), tokens = input.size(1), width = input.size(2);
  const auto all = qkv_->forward(input).view({images, tokens, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
  const auto values = at::scaled_dot_product_attention(all[0], all[1], all[2]);
  return proj_->forward(values.transpose(1, 2).reshape({images, tokens, width}));
}

FeedForward::FeedForward(int64_t width, int64_t hidden, const memory::Activation& activation)
    : torch::nn::Module("FeedForward") {
  fc1_ = register_module("fc1", std::make_shared<Projection>(width, hidden));
  act_ = register_module("act", std::make_shared<memory::ActivationModule>(activation));
  fc2_ = register_module("fc2", std::make_shared<Projection>(hidden, width));
}

Tensor FeedForward::forward(const Tensor& input) const { return fc2_->forward(act_->overwrite(fc1_->forward(input))); }

}  // namespace tandem::models
