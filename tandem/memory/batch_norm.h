#pragma once
#include "tandem/base/tensor.h"
#include "tandem/memory/channel_statistics.h"

namespace tandem::memory {

/// Batch normalisation of tensors of any floating type, layout and device:
///
///   y = weight (x - mean) / sqrt(variance + epsilon) + bias
///
///   x         [N, C, ...] floating; N may be 0
///   training  normalises by the batch and moves the running statistics as the context has it (base/context.h);
///             else by the running statistics
///   returns   y, of x's shape and type
///
/// With state.ranks the batch in training is that of all ranks, whose parts may be uneven or empty: the result, the
/// gradients and the running statistics are those of one device with the whole batch, up to rounding. Then the call is
/// collective, and so is its backward; the gradients of weight and bias are this rank's terms of a sum over the ranks.
/// Each rank sends 2 C + 1 float64 numbers to each other rank in forward (rows, means and sums of squared deviations,
/// which merge without cancellation), and takes part in a sum of 2 C float64 numbers in backward. Evaluation is not
/// collective. Kept for backward: x and three numbers a channel. Without state.ranks this is ATen's batch_norm.
///
/// Throws c10::ValueError if all ranks together have one value a channel, and, with state.ranks,
/// c10::NotImplementedError for backward through backward; a tangent of y (base/tangent.h) can be differentiated with
/// state.ranks too.
/// Source: Ioffe, Szegedy 2015, Batch Normalization (arXiv:1502.03167), section 3.
Tensor batch_norm(const Tensor& x, const BatchNormState& state, bool training);

}  // namespace tandem::memory
