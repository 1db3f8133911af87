#pragma once
#include <memory>

#include "tandem/layers/linear.h"
#include "tandem/memory/switch_activations.h"

/// What transformers are made of, with timm's parameters' names and draws. Attention and feed-forward layer are divided
/// by heads and by hidden units; each takes and gives tokens that are invariant, and needs one all_reduce forward and
/// one backward. Source: Shoeybi et al. 2019, Megatron-LM (arXiv:1909.08053), section 3.
///
/// With `tokens` these are divided too: a layer takes and gives this rank's tokens, and an all_gather and a
/// reduce_scatter take the place of each all_reduce. As many bytes are sent, and what lies between the layers takes
/// 1 / N of the memory (sequence parallelism). Source: Korthikanti et al. 2022, Reducing activation recomputation
/// (arXiv:2205.05198), section 4.2.2.
namespace tandem::layers {

/// Over the last dim; weight and bias [channels], which start at 1 and 0.
class LayerNorm : public Layer {
 public:
  /// `tokens`: the group over whose ranks the tokens are divided; the gradients of weight and bias are summed over it.
  explicit LayerNorm(int64_t channels, comm::ProcessGroup* tokens = nullptr, double epsilon = 1e-6);

  /// [..., channels]. With `tokens` collective in backward: one all_reduce of 2 * channels numbers.
  Tensor forward(const Tensor& x) const;
  void initialize(uint64_t seed, const std::string& name) override;

 private:
  comm::ProcessGroup* tokens_;
  double epsilon_;
  Tensor weight_, bias_;
};

/// Every token looks at all of its image: softmax(q k' / sqrt(width / heads)) v a head, then a projection. Children
/// `qkv` and `proj`: `qkv.weight` of the whole, [3 width, width], has all heads of q, then of k, then of v, and this
/// rank its heads of each. Source: Vaswani et al. 2017, Attention is all you need (arXiv:1706.03762), section 3.2.
class Attention : public torch::nn::Module {
 public:
  /// Throws c10::ValueError if the heads do not divide `width`, or if a rank has none.
  Attention(int64_t width, const Division& heads, const std::optional<Division>& tokens = {});

  /// [N, tokens, width] to the same. Memory for backward: this rank's heads of q, k, v and the result, and a number a
  /// token and head. Collective.
  Tensor forward(const Tensor& x) const;

 private:
  Division heads_;
  std::optional<Division> tokens_;
  std::shared_ptr<ColumnLinear> qkv_;
  std::shared_ptr<RowLinear> proj_;
};

/// Of each token on its own: fc1 to `hidden`, activation, fc2. Children `fc1`, `act` and `fc2`.
class FeedForward : public torch::nn::Module {
 public:
  FeedForward(int64_t width, const Division& hidden, const memory::Activation& activation,
              const std::optional<Division>& tokens = {});

  /// [..., width] to the same; with `tokens` [N, tokens, width]. Collective.
  Tensor forward(const Tensor& x) const;

 private:
  std::optional<Division> tokens_;
  std::shared_ptr<ColumnLinear> fc1_;
  std::shared_ptr<memory::ActivationModule> act_;
  std::shared_ptr<RowLinear> fc2_;
};

}  // namespace tandem::layers
