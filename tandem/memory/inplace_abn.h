#pragma once
#include "tandem/base/tensor.h"
#include "tandem/kernels/abn_kernels.h"
#include "tandem/memory/channel_statistics.h"

namespace tandem::memory {

using AbnState = BatchNormState;

/// What backward sums over a channel. Equal in exact arithmetic.
enum class AbnForm {
  one,  // dy and dy (y - bias): about ten times as exact as `two` would be in float32 where the weight is small
  two,  // dy and dy y, added in float64, because dy y and bias dy cancel
};

/// Batch normalisation and an invertible activation f, written over the input:
///
///   y = g (x - mean) / sqrt(variance + epsilon) + bias,   z = f(y),   g = sign(weight) max(|weight|, kLeastWeight)
///
///                           kept for backward
///   batch_norm, then f      x, and y or z
///   inplace_abn             z, which the next layer keeps anyway; swish: and a bit a number
///
///   x           [N, C] or [N, C, H, W] floating; its values are lost
///   activation  leaky ReLU of slope kLeakySlope, ELU of scale 1, swish or the identity
///   training    normalises by the batch and moves the running statistics as the context has it (base/context.h);
///               else by the running statistics
///   state       with `ranks`: the batch in training is that of all ranks, as for batch_norm() (memory/batch_norm.h)
///   returns     z, in x's memory
///
/// The weight keeps its sign, and a given |weight| of at least kLeastWeight its value: standard weights, also negative
/// ones, make the same function as in batch_norm. A smaller one, which backward could not divide by, counts as
/// kLeastWeight with its sign; its gradient passes unchanged. (The original's |weight| + epsilon makes another function
/// of every negative weight.)
///
/// Backward writes over the incoming gradient if nobody else holds it, else takes one new tensor of x's size. For
/// tensors of float32 or float64 with parameters of that type, and of bfloat16 with parameters of float32, in which the
/// numbers are then computed, on the CPU and where GPUs have kernels (base/device_kernels.h), there without `ranks`. x
/// is copied first if it is not channels last, or a view.
/// Other tensors, and inputs without numbers, go to ATen's batch_norm and f, which keep what they keep.
/// Throws c10::ValueError if the memory of x is also held elsewhere, such as by the operation that returned x, for its
/// backward; the text names that operation. Throws c10::NotImplementedError for second derivatives.
/// Source: Rota Bulo, Porzi, Kontschieder 2018, In-place activated BatchNorm (arXiv:1712.02616), section 3.2; swish by
/// its two branches is ours.
Tensor inplace_abn(Tensor x, kernels::Invertible activation, const AbnState& state, bool training,
                   AbnForm form = AbnForm::one);

inline constexpr double kLeastWeight = 1e-5, kLeakySlope = 0.01;

}  // namespace tandem::memory
