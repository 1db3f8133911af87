#pragma once
#include <memory>

#include "tandem/layers/linear.h"

/// The parts of a transformer, divided by heads and by hidden units, with timm's parameters' names. Each takes and
/// gives tokens that are invariant, and needs one all_reduce forward and one backward. Source: Shoeybi et al. 2019,
/// Megatron-LM (arXiv:1909.08053), section 3.
namespace tandem::layers {

/// Every token looks at all of its image, as in models/network/transformer.h. Children `qkv` and `proj`: `qkv.weight`
/// of the whole has all heads of q, then of k, then of v, and this rank its heads of each.
class SplitAttention : public torch::nn::Module {
 public:
  /// Throws c10::ValueError if the heads do not divide `width`, or if a rank has none.
  SplitAttention(int64_t width, const Division& heads);

  /// [N, tokens, width] to the same. Memory for backward: 1 / N of q, k, v. Collective.
  Tensor forward(const Tensor& x) const;

 private:
  Division heads_;
  std::shared_ptr<ColumnLinear> qkv_;
  std::shared_ptr<RowLinear> proj_;
};

/// fc1, `activation`, fc2. Children `fc1` and `fc2`.
class SplitFeedForward : public torch::nn::Module {
 public:
  SplitFeedForward(int64_t width, const Division& hidden, Tensor (*activation)(const Tensor& x));

  /// [..., width] to the same. Collective.
  Tensor forward(const Tensor& x) const;

 private:
  std::shared_ptr<ColumnLinear> fc1_;
  std::shared_ptr<RowLinear> fc2_;
  Tensor (*activation_)(const Tensor& x);
};

/// Layer normalisation of tokens that are varying along a dim: each rank has some of them. The gradients of weight and
/// bias are summed over the ranks.
class SequenceLayerNorm : public Layer {
 public:
  SequenceLayerNorm(int64_t channels, comm::ProcessGroup& group, double epsilon = 1e-6);

  /// [..., channels]. Collective in backward: one all_reduce of 2 * channels numbers.
  Tensor forward(const Tensor& x) const;
  void initialize(uint64_t seed, const std::string& name) override;

 private:
  comm::ProcessGroup& group_;
  double epsilon_;
  Tensor weight_, bias_;
};

}  // namespace tandem::layers
