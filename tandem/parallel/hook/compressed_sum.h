#pragma once
#include "tandem/parallel/gradient_hook.h"

namespace tandem::parallel {

/// The gradients are rounded to float16 or bfloat16, summed over the ranks and written back to the bucket in its own
/// type. Wire: 2 (N - 1) / N of 2 bytes a gradient. Ranks of one host add in float32, in rank order, and round the sum
/// once; between hosts each of the N - 1 additions rounds. A hook holds a scratch of 2 bytes a gradient, for as many as
/// options.bucket_bytes has room for; a larger bucket travels in pieces.
std::unique_ptr<GradientHook> make_half_sum(const std::vector<Tensor>& parameters, const GradientHookOptions& options);
std::unique_ptr<GradientHook> make_bfloat16_sum(const std::vector<Tensor>& parameters,
                                                const GradientHookOptions& options);

}  // namespace tandem::parallel
