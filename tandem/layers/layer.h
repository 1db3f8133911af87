#pragma once
#include <torch/nn/module.h>

#include <optional>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/parallel/placement.h"

namespace tandem::layers {

/// A layer that can initialise its weights. It leaves them unset until initialize() draws them by name: building a
/// layer draws no numbers and uses no generator that threads share. Another element type is that of its floating-point
/// numbers, as in Python: buffers of whole numbers keep theirs.
class Layer : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  using torch::nn::Module::to;
  void to(at::ScalarType type, bool non_blocking = false) override;
  void to(at::Device device, at::ScalarType type, bool non_blocking = false) override;

  /// Fills this layer's own parameters and buffers; `name` is its place in the model ("layer1.0.conv1"). Numbers depend
  /// on the seed, the parameter's name and the place in the whole parameter alone, also where this rank holds a part.
  virtual void initialize(uint64_t seed, const std::string& name) = 0;

  /// The parameters and buffers that are this rank's part of one of the whole layer. A rank may have several parts of
  /// one. The others are invariant (type_check.h) over the ranks of the group.
  struct Part {
    std::string parameter, whole;  // its name in this layer, and in the whole one
    parallel::Split split;
  };
  virtual std::vector<Part> parts() const { return {}; }

  /// From now on, what this layer multiplies is first rounded to `type`; nullopt: it is not.
  void round_products(std::optional<at::ScalarType> type) { products_ = type; }

 protected:
  /// x as it enters a product.
  Tensor factor(const Tensor& x) const { return products_ && x.defined() ? x.to(*products_) : x; }

 private:
  std::optional<at::ScalarType> products_;
};

/// Calls initialize() of every Layer below `model`, with its name in the model.
void initialize(torch::nn::Module& model, uint64_t seed);

}  // namespace tandem::layers
