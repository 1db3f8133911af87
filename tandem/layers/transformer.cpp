#include "tandem/layers/transformer.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/comm/collectives.h"
#include "tandem/comm/region.h"

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

constexpr int64_t kTokens = 1;  // dim

/// Those of all ranks, each of which works with all.
Tensor all_tokens(const Tensor& x, const std::optional<Division>& tokens) {
  if (!tokens || tokens->group().size() == 1) return x;
  return comm::all_gather(x, tokens->group(), kTokens, tokens->counts());
}

ColumnLinear::Options first_linear(const std::optional<Division>& tokens, int64_t stacks = 1) {
  return {.copies = !tokens, .gathers = false, .draw = LinearDraw::transformer, .stacks = stacks};
}

RowLinear::Options last_linear(const std::optional<Division>& tokens) {
  return {.rows = tokens ? std::optional(kTokens) : std::nullopt, .draw = LinearDraw::transformer};
}

}  // namespace

LayerNorm::LayerNorm(int64_t channels, comm::ProcessGroup* tokens, double epsilon)
    : Layer("LayerNorm"), tokens_(tokens), epsilon_(epsilon) {
  weight_ = register_parameter("weight", at::empty({channels}));
  bias_ = register_parameter("bias", at::empty({channels}));
}

Tensor LayerNorm::forward(const Tensor& x) const {
  if (tokens_ == nullptr) return at::layer_norm(x, weight_.sizes(), weight_, bias_, epsilon_);
  const auto both = comm::copy_to_region(at::stack({weight_, bias_}), *tokens_);
  return at::layer_norm(x, weight_.sizes(), both[0], both[1], epsilon_);
}

void LayerNorm::initialize(uint64_t /*seed*/, const std::string& /*name*/) {
  const at::NoGradGuard no_grad;
  weight_.fill_(1);
  bias_.zero_();
}

Attention::Attention(int64_t width, const Division& heads, const std::optional<Division>& tokens)
    : torch::nn::Module("Attention"), heads_(heads), tokens_(tokens) {
  const auto channels = channels_of_heads(heads, width);
  qkv_ = register_module("qkv", std::make_shared<ColumnLinear>(width, channels, first_linear(tokens, kStacks)));
  proj_ = register_module("proj", std::make_shared<RowLinear>(channels, width, last_linear(tokens)));
}

Tensor Attention::forward(const Tensor& own) const {
  const auto x = all_tokens(own, tokens_);
  const auto images = x.size(0), tokens = x.size(1), of_head = x.size(2) / heads_.total();
  const auto all =
      qkv_->forward(x).view({images, tokens, kStacks, heads_.count(), of_head}).permute({2, 0, 3, 1, 4}).unbind();
  const auto values = at::scaled_dot_product_attention(all[0], all[1], all[2]);
  return proj_->forward(values.transpose(1, 2).reshape({images, tokens, heads_.count() * of_head}));
}

FeedForward::FeedForward(int64_t width, const Division& hidden, const memory::Activation& activation,
                         const std::optional<Division>& tokens)
    : torch::nn::Module("FeedForward"), tokens_(tokens) {
  fc1_ = register_module("fc1", std::make_shared<ColumnLinear>(width, hidden, first_linear(tokens)));
  act_ = register_module("act", std::make_shared<memory::ActivationModule>(activation));
  fc2_ = register_module("fc2", std::make_shared<RowLinear>(hidden, width, last_linear(tokens)));
}

Tensor FeedForward::forward(const Tensor& x) const {
  return fc2_->forward(act_->overwrite(fc1_->forward(all_tokens(x, tokens_))));
}

}  // namespace tandem::layers
