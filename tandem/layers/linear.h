#pragma once
#include <optional>

#include "tandem/layers/division.h"
#include "tandem/layers/layer.h"

namespace tandem::layers {

/// How a linear layer is drawn.
enum class LinearDraw : uint8_t {
  fan_in,      // as torch.nn.Linear: weight and bias uniformly in +-1 / sqrt(in)
  transformer  // as timm's vision transformers: the weight normal of deviation 0.02, the bias 0
};

/// y = x W' + b; W [out, in]. Every rank that has one has all of it.
class Linear : public Layer {
 public:
  Linear(int64_t in, int64_t out, bool bias = true, LinearDraw draw = LinearDraw::fan_in);

  /// x: [..., in].
  Tensor forward(const Tensor& x) const;
  void initialize(uint64_t seed, const std::string& name) override;

 private:
  LinearDraw draw_;
  Tensor weight_, bias_;
};

/// y = x W' + b with W [out, in] divided by its outputs: each rank has some rows of W and some entries of b, and works
/// out these columns of y.
///
///   x ─▶ copy_to_region ─▶ x W_r' + b_r ─▶ [gather_from_region] ─▶ y
///
/// Memory: 1 / N of the weights. Wire: all_reduce of dx; with `gathers` all_gather of y. Collective.
class ColumnLinear : public Layer {
 public:
  struct Options {
    bool bias = true;
    bool copies = true;   // x is invariant; otherwise replicated, such as what comm::all_gather gives
    bool gathers = true;  // y is invariant, [..., out]; otherwise varying, [..., stacks * out.count()]
    LinearDraw draw = LinearDraw::fan_in;
    int64_t stacks = 1;  // W is so many weights one above the other, each divided so: q, k and v of an attention
  };
  /// Of several stacks a rank holds a part of each: parameters "weight_0", "weight_1", ..., which lie one behind the
  /// other in memory; in a group of one rank they are one. Throws c10::ValueError if it gathers several stacks.
  ColumnLinear(int64_t in, const Division& out, const Options& options);

  /// x: [..., in].
  Tensor forward(const Tensor& x) const;
  void initialize(uint64_t seed, const std::string& name) override;
  std::vector<Part> parts() const override;

 private:
  void add(const std::string& name, at::IntArrayRef sizes, std::vector<Tensor>& stacks);

  int64_t in_;
  Division out_;
  Options options_;
  std::vector<Tensor> weights_, biases_;  // of the stacks; or one of all of them
};

/// The same divided by its inputs: each rank has some columns of W, and works out a term of y. The bias is added once,
/// after the sum.
///
///   x ─▶ [scatter_to_region] ─▶ x_r W_r' ─▶ reduce_from_region ─▶ + b ─▶ y
///
/// After a ColumnLinear that does not gather, the two need one all_reduce forward and one backward together. With
/// `rows` a reduce_scatter takes the place of the sum: y is varying along that dim, where each rank gets its samples or
/// tokens, by comm::split_sizes(); the gradient of the bias is summed over the ranks. Memory: 1 / N of the weight.
/// Wire: all_reduce of y, or a reduce_scatter and an all_gather of its gradient; with `scatters` all_gather of dx.
/// Collective.
class RowLinear : public Layer {
 public:
  struct Options {
    bool bias = true;
    bool scatters = false;             // x is invariant, [..., in]; otherwise varying, [..., in.count()]
    std::optional<int64_t> rows = {};  // nullopt: y is invariant
    LinearDraw draw = LinearDraw::fan_in;
  };
  RowLinear(const Division& in, int64_t out, const Options& options);

  /// Returns [..., out].
  Tensor forward(const Tensor& x) const;
  void initialize(uint64_t seed, const std::string& name) override;
  std::vector<Part> parts() const override;

 private:
  Division in_;
  int64_t out_;
  Options options_;
  Tensor weight_, bias_;
};

}  // namespace tandem::layers
