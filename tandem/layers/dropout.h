#pragma once
#include <torch/nn/module.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/base/tensor.h"
#include "tandem/layers/division.h"

namespace tandem::layers {

/// In training, each value becomes 0 with probability `rate`, or else is divided by 1 - rate.
///
/// The random numbers are counted, not drawn from a generator: they depend on the context's seed and step
/// (base/context.h), on the layer's name, on the sample's number in the whole batch and on the value's place in the
/// whole sample. So they are the same however the batch is split over ranks and micro-batches, and the sample over
/// ranks, and when a forward is computed again.
/// Source: Srivastava et al. 2014, Dropout.
class Dropout : public torch::nn::Module {
 public:
  /// A dim of the input, 1 or above, of which each rank has a part.
  struct Divided {
    int64_t dim;
    Division parts;
  };

  /// `name`: of the layer in its model. Throws c10::ValueError unless 0 <= rate < 1.
  Dropout(double rate, const std::string& name, const std::optional<Divided>& divided = {});

  ///   input    [N, ...] floating
  ///   returns  the same shape; the input itself if the rate is 0 or in evaluation
  /// Keeps a mask of the input's shape and type for backward.
  Tensor forward(const Tensor& input) const;

 private:
  double rate_;
  uint64_t stream_;
  std::optional<Divided> divided_;
};

}  // namespace tandem::layers
