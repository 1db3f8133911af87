#pragma once
#include <array>

#include "tandem/layers/division.h"
#include "tandem/layers/layer.h"

/// 2-d convolutions, zero-padded, whole or with their channels divided.
namespace tandem::layers {

/// How a convolution is drawn.
enum class Draw : uint8_t {
  fan_out,  // as in torchvision: normal with deviation gain * sqrt(2 / (out * kernel * kernel)) (He et al. 2015); bias
            // 0
  fan_in    // as torch.nn.Conv2d: weight and bias uniform in +-1 / sqrt(in / groups * kernel * kernel)
};

/// A number for the height and one for the width.
struct Sides {
  int64_t height, width;
  Sides(int64_t both) : height(both), width(both) {}  // NOLINT: a number stands for both
  Sides(int64_t height, int64_t width) : height(height), width(width) {}
  std::array<int64_t, 2> list() const { return {height, width}; }
};

/// Weight [out, in / groups, kernel height, kernel width]. Every rank that has one has all of it.
class Conv2d : public Layer {
 public:
  struct Options {
    int64_t in, out;
    Sides kernel = 1, stride = 1, padding = 0, dilation = 1;
    int64_t groups = 1;
    bool bias = false;
    double gain = 1;
    Draw draw = Draw::fan_out;
  };
  explicit Conv2d(const Options& options);

  /// [N, in, H, W] to [N, out, H', W'].
  virtual Tensor forward(const Tensor& x) const;
  void initialize(uint64_t seed, const std::string& name) override;

 protected:
  /// A rank's part of the one that `whole` tells: a weight [out, in, ...] of its own, and a bias [bias].
  Conv2d(const Options& whole, int64_t out, int64_t in, int64_t bias);

  Tensor convolved(const Tensor& x, const Tensor& bias, int64_t groups = 1) const;

  Options options_;  // of the whole
  Tensor weight_, bias_;
};

/// Divided by its output channels, as ColumnLinear is by its outputs.
///
///   x ─▶ copy_to_region ─▶ conv(x, W_r) + b_r ─▶ [gather_from_region] ─▶ y
class OutputConv2d : public Conv2d {
 public:
  /// `whole`: one group. With `gathers`, y [N, out, H, W] is invariant; otherwise varying, [N, out.count(), H, W].
  /// Throws c10::ValueError for a rank without channels.
  OutputConv2d(const Options& whole, const Division& out, bool gathers = true);

  /// x: [N, in, H, W], invariant. Collective.
  Tensor forward(const Tensor& x) const override;
  std::vector<Part> parts() const override;

 private:
  Division out_;
  bool gathers_;
};

/// Divided by its input channels, as RowLinear is by its inputs; the bias is added once.
///
///   x ─▶ [scatter_to_region] ─▶ conv(x_r, W_r) ─▶ reduce_from_region ─▶ + b ─▶ y
class InputConv2d : public Conv2d {
 public:
  /// `whole`: one group. With `scatters`, x is invariant, [N, in, H, W]; otherwise varying, [N, in.count(), H, W].
  /// Throws as OutputConv2d.
  InputConv2d(const Options& whole, const Division& in, bool scatters = false);

  /// Returns [N, out, H, W], invariant. Collective.
  Tensor forward(const Tensor& x) const override;
  std::vector<Part> parts() const override;

 private:
  Division in_;
  bool scatters_;
};

/// A convolution of groups, which are divided: no rank needs another's channels. The ranks share a batch, each with
/// samples of its own; the first layer of a chain of these (`is_head`) exchanges them for channels, the last one
/// (`is_tail`) gives them back, and between the two nothing is sent.
///
///   is_head: [n_r, in, H, W] ─ to_model_parallel ─▶ [n, in_r, H, W] ─▶ conv ─▶ [n, out_r, H, W]
///                                             ... is_tail: ─ to_data_parallel ─▶ [n_r, out, H, W]
///
/// The gradient of the weights is that of the whole batch: it must not be summed over the group.
class GroupConv2d : public Conv2d {
 public:
  /// Throws c10::ValueError if the groups are not those of `whole`, or do not divide its channels; for a rank without
  /// groups.
  GroupConv2d(const Options& whole, const Division& groups, bool is_head = true, bool is_tail = true);

  /// Collective.
  Tensor forward(const Tensor& x) const override;
  std::vector<Part> parts() const override;

 private:
  Division groups_, in_, out_;
  bool is_head_, is_tail_;
};

}  // namespace tandem::layers
