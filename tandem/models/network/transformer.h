#pragma once
#include <memory>

#include "tandem/models/network/layers.h"

/// What transformers are made of, with timm's parameters' names. Linear layers are drawn as timm draws them: normal of
/// deviation 0.02, biases 0.
namespace tandem::models {

/// Over the last dimension; weight and bias [channels], which start at 1 and 0.
class LayerNorm : public Layer {
 public:
  explicit LayerNorm(int64_t channels, double epsilon = 1e-6);

  Tensor forward(const Tensor& input) const;
  void initialize(uint64_t seed, const std::string& name) override;

 private:
  double epsilon_;
  Tensor weight_, bias_;
};

/// Linear, drawn for a transformer.
class Projection : public Linear {
 public:
  Projection(int64_t in, int64_t out) : Linear(in, out, /*bias=*/true) {}

  void initialize(uint64_t seed, const std::string& name) override;
};

/// Every token looks at all of its image: softmax(q k' / sqrt(width / heads)) v a head, then a projection. `qkv.weight`
/// [3 width, width] has all heads of q, then of k, then of v. Source: Vaswani et al. 2017, Attention is all you need
/// (arXiv:1706.03762), section 3.2.
class Attention : public torch::nn::Module {
 public:
  /// `heads` divides `width`.
  Attention(int64_t width, int64_t heads);

  /// [N, tokens, width] to the same. Memory for backward: q, k, v, the result, and a number a token and head.
  Tensor forward(const Tensor& input) const;

 private:
  int64_t heads_;
  std::shared_ptr<Projection> qkv_, proj_;
};

/// Of each token on its own: fc1 to `hidden`, activation, fc2.
class FeedForward : public torch::nn::Module {
 public:
  FeedForward(int64_t width, int64_t hidden, const memory::Activation& activation);

  Tensor forward(const Tensor& input) const;

 private:
  std::shared_ptr<Projection> fc1_, fc2_;
  std::shared_ptr<memory::ActivationModule> act_;
};

}  // namespace tandem::models
