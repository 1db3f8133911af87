#pragma once
#include <array>

#include "tandem/base/tensor.h"

// The products of layers. Where a memory::WeightWork waits for them, backward leaves the gradients of weights to it.
namespace tandem::layers::detail {

/// at::linear().
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

struct ConvolutionForm {
  std::array<int64_t, 2> stride, padding, dilation;
  int64_t groups = 1;
};

/// at::conv2d().
Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionForm& form);

}  // namespace tandem::layers::detail
