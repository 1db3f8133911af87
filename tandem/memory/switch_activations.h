#pragma once
#include <torch/nn/module.h>

#include "tandem/base/tensor.h"
#include "tandem/memory/activation.h"

namespace tandem::memory {

/// Implemented by modules of which an activation is a part.
class HasActivation {
 public:
  virtual ~HasActivation() = default;
  virtual void set_activation(const Activation& activation) = 0;
};

/// An activation as a module without parameters. `activation` must outlive it, as those of activation_of() do.
class ActivationModule : public torch::nn::Module, public HasActivation {
 public:
  explicit ActivationModule(const Activation& activation)
      : torch::nn::Module("ActivationModule"), activation_(&activation) {}

  Tensor forward(const Tensor& x) { return activation_->apply(x); }

  /// For an x as Activation::overwrite wants it.
  Tensor overwrite(const Tensor& x) { return activation_->overwrite(x); }

  void set_activation(const Activation& activation) override { activation_ = &activation; }
  const Activation& activation() const { return *activation_; }

 private:
  const Activation* activation_;
};

/// From now on `model` and all modules below it use `activation`: modules that implement HasActivation (those of
/// Tandem's models), and ReLU, SiLU, Mish and GELU in a torch::nn::Sequential, which an ActivationModule replaces under
/// the same name. Activations that a module of the caller's own calls as functions are not found. Weights and their
/// names stay. Must not run while another thread uses the model. Returns how many were switched.
int64_t switch_activations(torch::nn::Module& model, const Activation& activation);

}  // namespace tandem::memory
