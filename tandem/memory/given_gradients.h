#pragma once
#include <torch/csrc/autograd/edge.h>

#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::memory {

/// Backward from outputs that are known by their edges alone, with a gradient for each; adds to .grad. Unlike
/// torch::autograd::backward() nobody holds these gradients meanwhile: each is freed, or kept, by what takes it.
void run_backward(const std::vector<torch::autograd::Edge>& outputs, std::vector<Tensor> gradients);

}  // namespace tandem::memory
