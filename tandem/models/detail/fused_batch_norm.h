#pragma once
#include "tandem/base/tensor.h"
#include "tandem/memory/channel_statistics.h"

namespace tandem::models::detail {

using memory::BatchNormState;

/// True if fused_batch_norm() supports this input: on the CPU, float32 or bfloat16, [N, C] or [N, C, H, W] channels
/// last, not empty, C a multiple of 16, parameters float32 or undefined, for 1 and 0; `residual` undefined or alike.
bool can_fuse(const Tensor& input, const Tensor& residual, const BatchNormState& state);

/// batch_norm(input) + residual, rectified if `relu`, in one pass over memory after the pass for the statistics;
/// backward takes two. The rectifier and the sum cost no pass of their own. The rectifier's mask is computed again from
/// the input or, if there is a residual, from the output. In training the running statistics are updated, and with
/// state.ranks the batch is that of all ranks, as for memory::batch_norm(). The sums do not depend on the number of
/// threads. Differentiable in training only. Under create_graph its gradient is worked out by libtorch's operations;
/// with state.ranks that throws c10::NotImplementedError.
Tensor fused_batch_norm(const Tensor& input, const BatchNormState& state, bool training, bool relu,
                        const Tensor& residual);

}  // namespace tandem::models::detail
