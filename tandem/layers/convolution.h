#pragma once
#include "tandem/layers/division.h"
#include "tandem/layers/layer.h"

/// 2-d convolutions, zero-padded, whose channels are divided; weights [out, in / groups, kernel, kernel] are drawn as
/// torch.nn.Conv2d draws them, uniformly in +-1 / sqrt(in / groups * kernel * kernel).
namespace tandem::layers {

struct ConvolutionShape {
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  bool bias = false;
};

/// Divided by its output channels, as ColumnLinear is by its outputs.
///
///   x ─▶ copy_to_region ─▶ conv(x, W_r) + b_r ─▶ [gather_from_region] ─▶ y
class OutputConv2d : public Layer {
 public:
  /// With `gathers`, y [N, out, H, W] is invariant; otherwise varying, [N, out.count(), H, W].
  OutputConv2d(int64_t in, const Division& out, const ConvolutionShape& shape, bool gathers = true);

  /// x: [N, in, H, W], invariant. Collective.
  Tensor forward(const Tensor& x) const;
  void initialize(uint64_t seed, const std::string& name) override;
  std::vector<Part> parts() const override;

 private:
  int64_t in_;
  Division out_;
  ConvolutionShape shape_;
  bool gathers_;
  Tensor weight_, bias_;
};

/// Divided by its input channels, as RowLinear is by its inputs; the bias is added once.
///
///   x ─▶ [scatter_to_region] ─▶ conv(x_r, W_r) ─▶ reduce_from_region ─▶ + b ─▶ y
class InputConv2d : public Layer {
 public:
  /// With `scatters`, x is invariant, [N, in, H, W]; otherwise varying, [N, in.count(), H, W].
  InputConv2d(const Division& in, int64_t out, const ConvolutionShape& shape, bool scatters = false);

  /// Returns [N, out, H, W], invariant. Collective.
  Tensor forward(const Tensor& x) const;
  void initialize(uint64_t seed, const std::string& name) override;
  std::vector<Part> parts() const override;

 private:
  Division in_;
  int64_t out_;
  ConvolutionShape shape_;
  bool scatters_;
  Tensor weight_, bias_;
};

/// A convolution of groups, which are divided: no rank needs another's channels. The ranks share a batch, each with
/// samples of its own; the first layer of a chain of these (`is_head`) exchanges them for channels, the last one
/// (`is_tail`) gives them back, and between the two nothing is sent.
///
///   is_head: [n_r, in, H, W] ─ to_model_parallel ─▶ [n, in_r, H, W] ─▶ conv ─▶ [n, out_r, H, W]
///                                             ... is_tail: ─ to_data_parallel ─▶ [n_r, out, H, W]
///
/// The gradient of the weights is that of the whole batch: it must not be summed over the group.
class GroupConv2d : public Layer {
 public:
  struct Options {
    int64_t in, out;  // of all groups; multiples of their number
    ConvolutionShape shape;
    bool is_head = true, is_tail = true;
  };
  /// Throws c10::ValueError if the groups do not divide `in` and `out`.
  GroupConv2d(const Division& groups, const Options& options);

  /// Collective.
  Tensor forward(const Tensor& x);
  void initialize(uint64_t seed, const std::string& name) override;
  std::vector<Part> parts() const override;

 private:
  Division groups_, in_, out_;
  Options options_;
  Tensor weight_, bias_;
};

}  // namespace tandem::layers
