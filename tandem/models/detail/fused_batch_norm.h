#pragma once
#include "tandem/base/tensor.h"
#include "tandem/models/network/layers.h"

namespace tandem::models::detail {

/// What batch normalisation holds: parameters and running statistics, all float32 [C].
struct BatchNormState {
  Tensor weight, bias, running_mean, running_var;
  double momentum, epsilon;
};

/// Whether fused_batch_norm takes this input: on the CPU, float32 or bfloat16, [N, C] or [N, C, H, W] channels last,
/// not empty, C a multiple of 16, parameters float32.
bool can_fuse(const Tensor& input, const Tensor& residual, const BatchNormState& state);

/// activation(batch_norm(input) + residual) in one pass over memory after the one that counts, backward in two: the
/// rectifier and the sum cost no pass of their own and keep no tensor (its mask is computed again from the input).
/// In training the running statistics move. The sums do not depend on the number of threads.
/// Differentiable once: throws c10::NotImplementedError under create_graph.
Tensor fused_batch_norm(const Tensor& input, const BatchNormState& state, bool training, Activation activation,
                        const Tensor& residual);

}  // namespace tandem::models::detail
