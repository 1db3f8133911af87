#pragma once
#include <cstdint>

#include "tandem/base/tensor.h"

namespace tandem::models {

/// The name of a vision transformer's learned positions, [1, 1 + patches, width]: of the first token, then of the
/// patches, row by row.
inline constexpr const char* kPositions = "pos_embed";

/// True for positions of a square of patches, of the width of `wanted`.
bool can_be_resampled(at::IntArrayRef positions, at::IntArrayRef wanted);

/// Positions of a square of patches for another grid of them, [1, 1 + rows * columns, width]: bicubic with smoothing,
/// as timm's resample_abs_pos_embed(); the first token's stays. Throws c10::ValueError unless they can_be_resampled().
Tensor resampled_positions(const Tensor& positions, int64_t rows, int64_t columns);

}  // namespace tandem::models
