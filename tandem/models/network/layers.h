#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>

#include "tandem/base/tensor.h"
#include "tandem/layers/convolution.h"
#include "tandem/layers/layer.h"
#include "tandem/layers/linear.h"
#include "tandem/memory/activation.h"
#include "tandem/memory/channel_statistics.h"
#include "tandem/memory/switch_activations.h"
#include "tandem/models/model.h"

namespace tandem::models {

using layers::Conv2d;
using layers::Draw;
using layers::initialize;
using layers::Layer;
using layers::Linear;

/// Images as a first convolution wants them: on CPUs, in float32 or bfloat16, a copy with channels last in memory.
Tensor laid_out(const Tensor& images);

/// `parts` of a layer, heads or channels as `what` says, divided over options.tensor. `layer`: its name in the model.
/// Throws SettingsError, naming `tensor`, if a rank would have none.
layers::Division divide(const ModelOptions& options, const std::string& layer, int64_t parts, std::string_view what);

/// The channels of a block, such that each rank has all of those that options.norm normalises together.
layers::Division divide_channels(const ModelOptions& options, const std::string& block, int64_t channels);

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

  /// From now on, its channels are this rank's part of so many.
  void divide(const layers::Division& channels) { channels_ = channels; }
  std::vector<Part> parts() const override;

  /// Sets the weight to 0: a residual block whose last norm this is gives its shortcut. Has no effect without a weight.
  void zero_weight();

 protected:
  /// Null for none.
  const memory::Activation* following(Then then) const { return then == Then::activation ? activation_ : nullptr; }

 private:
  const memory::Activation* activation_;
  std::optional<layers::Division> channels_;
};

/// batch: torch::nn::BatchNorm's five entries, momentum 0.1, epsilon 1e-5. group: epsilon 1e-5, 16 channels a group,
/// one group if the input is [N, C].
/// Without `is_affine` it has no weight and no bias; norms that have an activation of their own always have them.
std::shared_ptr<Normalization> make_normalization(Norm norm, int64_t channels,
                                                  const memory::Activation& activation = memory::activation_of("relu"),
                                                  bool is_affine = true);

}  // namespace tandem::models
