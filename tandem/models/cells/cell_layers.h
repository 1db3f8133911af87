#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <string_view>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/models/model.h"

/// What cells are made of, with the parameters' names of quark0/darts. Convolutions have no bias and are drawn by their
/// fan-in.
namespace tandem::models {

/// A value of a cell, [N, C, H, W], which several layers take. Most begin with a ReLU, and in a search each edge from
/// it has the same poolings: they share one of each.
class CellValue {
 public:
  explicit CellValue(Tensor values) : values_(std::move(values)) {}

  const Tensor& values() const { return values_; }
  const Tensor& rectified() const {
    if (!rectified_.defined()) rectified_ = values_.relu();
    return rectified_;
  }

  /// Of so many channels, the same number in each call.
  const CellValue& first_channels(int64_t channels) const;

  /// pool(values(), stride), worked out once.
  Tensor pooled(Tensor (*pool)(const Tensor& x, int64_t stride), int64_t stride) const;

 private:
  struct Pooled {
    Tensor (*pool)(const Tensor& x, int64_t stride);
    int64_t stride;
    Tensor values;
  };

  Tensor values_;
  mutable Tensor rectified_;
  mutable std::shared_ptr<const CellValue> first_;
  mutable std::vector<Pooled> pooled_;
};

/// From one value of a cell to another. Never overwrites its input.
class CellLayer : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  virtual Tensor forward(const CellValue& x) const = 0;
  Tensor forward(const Tensor& x) const { return forward(CellValue(x)); }

  /// forward(x) * scale, [].
  virtual Tensor scaled(const CellValue& x, const Tensor& scale) const { return forward(x) * scale; }

  /// True if the output is the input itself.
  virtual bool is_identity() const { return false; }
};

struct CellLayerOptions {
  int64_t channels = 0, stride = 1;  // stride 1 or 2
  Norm norm = Norm::batch;
  bool is_affine = true;          // norms have weights and biases
  bool normalises_pools = false;  // a norm follows each pooling, as in a search
};

/// One of operation_names(): `channels` to as many, of 1 / stride of the height and width.
///
///   sep_conv_kxk   twice (ReLU, depthwise k x k, 1 x 1, norm), of which the first has the stride
///   dil_conv_kxk   ReLU, depthwise k x k of dilation 2, 1 x 1, norm
///   conv_7x1_1x7   ReLU, 1 x 7, 7 x 1, norm
///   nor_conv_kxk   ReLU, k x k, norm
///   skip_connect   the input; with stride 2 make_halving()
///   none           zeros
///   noise          normal numbers in place of the input: other ones in each step, and for each image
/// Source: Liu, Simonyan, Yang 2019, DARTS (arXiv:1806.09055), section 3.1. Throws c10::ValueError for another name.
std::shared_ptr<CellLayer> make_operation(std::string_view name, const CellLayerOptions& options);

/// False for an operation whose output tells nothing of its input: noise.
bool reads_input(std::string_view operation);

/// ReLU, kernel x kernel convolution from `in` channels, norm.
std::shared_ptr<CellLayer> make_convolution(int64_t in, int64_t kernel, const CellLayerOptions& options);

/// The same, 1 x 1.
std::shared_ptr<CellLayer> make_projection(int64_t in, const CellLayerOptions& options);

/// ReLU; two 1 x 1 convolutions of stride 2 from `in` channels to half of the channels each, of which the second begins
/// one pixel further right and down; norm. Height and width of the input must be even.
std::shared_ptr<CellLayer> make_halving(int64_t in, const CellLayerOptions& options);

/// From images to the cells' first inputs, for small images: 3 x 3 convolution, norm.
std::shared_ptr<CellLayer> make_stem(int64_t in, const CellLayerOptions& options);

/// How many times the channels of the first cells make_stem() gives in networks of cells.
inline constexpr int64_t kStemMultiplier = 3;

}  // namespace tandem::models
