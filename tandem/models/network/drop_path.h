#pragma once
#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "tandem/base/tensor.h"

namespace tandem::models {

/// In training, the output of a whole layer becomes 0 for a sample, or else is divided by what is left of 1; for layers
/// whose output is added to that of others. The rate grows with the context's progress from 0 to `rate`. The random
/// numbers are counted as those of layers::Dropout.
/// Source: Larsson et al. 2016, FractalNet (arXiv:1605.07648), section 3; its growth: Zoph et al. 2018
/// (arXiv:1707.07012).
class DropPath : public torch::nn::Module {
 public:
  /// `name`: of the layer in its model. Throws c10::ValueError unless 0 <= rate < 1.
  DropPath(double rate, const std::string& name);

  /// For so many layers, [layers, samples, 1, 1, 1], to multiply with [samples, C, H, W]. Undefined if the rate is 0 or
  /// in evaluation, but not at the beginning of training: each step needs the same memory.
  Tensor masks(int64_t layers, int64_t samples, const at::TensorOptions& options) const;

 private:
  double rate_;
  uint64_t stream_;
};

}  // namespace tandem::models
