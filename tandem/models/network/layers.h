#pragma once
#include <torch/nn/module.h>

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "tandem/base/tensor.h"
#include "tandem/layers/layer.h"
#include "tandem/memory/activation.h"
#include "tandem/memory/channel_statistics.h"
#include "tandem/memory/switch_activations.h"
#include "tandem/models/model.h"

/// Layers with torch::nn's parameter names. Unlike torch::nn's layers they leave their weights unset until initialize()
/// draws them by name: building a layer draws no numbers and uses no generator that threads share.
namespace tandem::models {

using layers::initialize;
using layers::Layer;

/// How a convolution's weights are drawn; biases start at 0.
enum class Draw : uint8_t {
  fan_out,  // as in torchvision: normal with deviation gain * sqrt(2 / (out * kernel * kernel)) (He et al. 2015)
  fan_in    // as torch.nn.Conv2d's default: uniform in +-1 / sqrt(in / groups * kernel * kernel)
};

/// A number for the height and one for the width.
struct Sides {
  int64_t height, width;
  Sides(int64_t both) : height(both), width(both) {}  // NOLINT: a number stands for both
  Sides(int64_t height, int64_t width) : height(height), width(width) {}
  std::array<int64_t, 2> list() const { return {height, width}; }
};

/// 2-d convolution, zero-padded; weight [out, in / groups, kernel height, kernel width].
class Conv2d : public Layer {
 public:
  struct Options {
    int64_t in, out;
    Sides kernel, stride = 1, padding = 0, dilation = 1;
    int64_t groups = 1;
    bool bias = false;
    double gain = 1.0;
    Draw draw = Draw::fan_out;
  };
  explicit Conv2d(const Options& options);

  Tensor forward(const Tensor& input) const;
  void initialize(uint64_t seed, const std::string& name) override;

 private:
  Options options_;
  Tensor weight_, bias_;
};

/// Images as a first convolution wants them: on CPUs, in float32 or bfloat16, a copy with channels last in memory.
Tensor laid_out(const Tensor& images);

/// y = x W' + b; weight [out, in]. Initialised uniformly in +-1 / sqrt(in), as torch::nn::Linear.
class Linear : public Layer {
 public:
  Linear(int64_t in, int64_t out, bool bias);

  Tensor forward(const Tensor& input) const;
  void initialize(uint64_t seed, const std::string& name) override;

 private:
  Tensor weight_, bias_;
};

/// What follows a normalisation.
enum class Then { nothing, activation };

/// Normalises over channels, together with the steps that follow it in a residual block: activation(norm(input) +
/// residual).
class Normalization : public Layer, public memory::HasActivation {
 public:
  Normalization(std::string name, const memory::Activation& activation)
      : Layer(std::move(name)), activation_(&activation) {}

  ///   input     [N, C] or [N, C, H, W]; may be overwritten where no gradient needs it, and always by an in-place norm
  ///   residual  undefined, or of the input's shape
  virtual Tensor forward(const Tensor& input, Then then = Then::nothing, const Tensor& residual = {}) = 0;

  /// forward(input) * scale, [], of a norm without a weight: batch and group norms take the scale as their weight,
  /// which keeps no product for backward.
  virtual Tensor scaled(const Tensor& input, const Tensor& scale) { return forward(input) * scale; }

  /// False if forward() may overwrite an input that has a gradient: nobody else may hold it.
  virtual bool keeps_input() const { return true; }

  void set_activation(const memory::Activation& activation) override { activation_ = &activation; }

  /// From now on, statistics of a batch are of the images of these ranks; null: of this rank's. Has an effect on
  /// Norm::sync only.
  virtual void share_statistics(std::shared_ptr<memory::StatisticsExchange> ranks) {}

  /// From now on, statistics are of this many images at a time. Has an effect on Norm::ghost only.
  virtual void normalize_by(int64_t images) {}

  /// Sets the weight to 0: a residual block whose last norm this is gives its shortcut. Has no effect without a weight.
  void zero_weight();

 protected:
  /// Null for none.
  const memory::Activation* following(Then then) const { return then == Then::activation ? activation_ : nullptr; }

 private:
  const memory::Activation* activation_;
};

/// batch: torch::nn::BatchNorm's five entries, momentum 0.1, epsilon 1e-5. group: epsilon 1e-5, 16 channels a group,
/// one group if the input is [N, C].
/// Without `is_affine` it has no weight and no bias; norms that have an activation of their own always have them.
std::shared_ptr<Normalization> make_normalization(Norm norm, int64_t channels,
                                                  const memory::Activation& activation = memory::activation_of("relu"),
                                                  bool is_affine = true);

}  // namespace tandem::models
