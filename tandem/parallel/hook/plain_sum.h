#pragma once
#include "tandem/parallel/gradient_hook.h"

namespace tandem::parallel {

/// One all_reduce a bucket, in place. Wire: 2 (N - 1) / N of the bucket's bytes.
std::unique_ptr<GradientHook> make_plain_sum(const std::vector<Tensor>& parameters, const GradientHookOptions& options);

}  // namespace tandem::parallel
