#include "tandem/layers/transformer.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/layers/exchange.h"

namespace tandem::layers {
namespace {

constexpr int64_t kStacks = 3;  // q, k, v

Division channels_of_heads(const Division& heads, int64_t width) {
  TORCH_CHECK_VALUE(heads.total() > 0 && width % heads.total() == 0, "attention: ", heads.total(),
                    " heads of a width of ", width, ", wanted a divisor");
  TORCH_CHECK_VALUE(std::ranges::min(heads.counts()) > 0, "attention: ", heads.total(), " heads on ",
                    heads.counts().size(), " ranks, wanted at least one on each");
  return heads.times(width / heads.total());
}

}  // namespace

SplitAttention::SplitAttention(int64_t width, const Division& heads) : torch::nn::Module("Attention"), heads_(heads) {
  const auto channels = channels_of_heads(heads, width);
  qkv_ = register_module("qkv", std::make_shared<ColumnLinear>(
                                    width, channels, ColumnLinear::Options{.gathers = false, .stacks = kStacks}));
  proj_ = register_module("proj", std::make_shared<RowLinear>(channels, width, RowLinear::Options{}));
}

Tensor SplitAttention::forward(const Tensor& x) const {
  const auto images = x.size(0), tokens = x.size(1), of_head = x.size(2) / heads_.total();
  const auto all = qkv_->forward(x).view({images, tokens, kStacks, heads_.count(), of_head}).permute({2, 0, 3, 1, 4});
  const auto values = at::scaled_dot_product_attention(all[0], all[1], all[2]);
  return proj_->forward(values.transpose(1, 2).reshape({images, tokens, heads_.count() * of_head}));
}

SplitFeedForward::SplitFeedForward(int64_t width, const Division& hidden, Tensor (*activation)(const Tensor& x))
    : torch::nn::Module("FeedForward"), activation_(activation) {
  fc1_ = register_module("fc1", std::make_shared<ColumnLinear>(width, hidden, ColumnLinear::Options{.gathers = false}));
  fc2_ = register_module("fc2", std::make_shared<RowLinear>(hidden, width, RowLinear::Options{}));
}

Tensor SplitFeedForward::forward(const Tensor& x) const { return fc2_->forward(activation_(fc1_->forward(x))); }

SequenceLayerNorm::SequenceLayerNorm(int64_t channels, comm::ProcessGroup& group, double epsilon)
    : Layer("LayerNorm"), group_(group), epsilon_(epsilon) {
  weight_ = register_parameter("weight", at::empty({channels}));
  bias_ = register_parameter("bias", at::empty({channels}));
}

Tensor SequenceLayerNorm::forward(const Tensor& x) const {
  const auto both = copy_to_region(at::stack({weight_, bias_}), group_);
  return at::layer_norm(x, weight_.sizes(), both[0], both[1], epsilon_);
}

void SequenceLayerNorm::initialize(uint64_t /*seed*/, const std::string& /*name*/) {
  const at::NoGradGuard no_grad;
  weight_.fill_(1);
  bias_.zero_();
}

}  // namespace tandem::layers
