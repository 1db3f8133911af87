#pragma once
#include <cstdint>

/// Floats as one byte each, with a scale for each block of kCodeBlock numbers (the last may be shorter).
///
///   code       0    ±1           ±m, m = 2..127
///   number     0    ±scale/2^20  ±(m - 1) * scale       scale = largest magnitude of the block / 126
///
/// |x - decoded x| is at most half the scale. A number keeps its sign, and only 0 becomes 0, so that what depends on
/// the sign (a rectifier's gradient) stays exact. A block with a number that is not finite comes back as NaN. One
/// thread.
namespace tandem::kernels {

inline constexpr int64_t kCodeBlock = 256;

inline constexpr int64_t code_blocks(int64_t count) { return (count + kCodeBlock - 1) / kCodeBlock; }

/// scales: code_blocks(count)
void encode(const float* x, int64_t count, int8_t* codes, float* scales);
void decode(const int8_t* codes, const float* scales, int64_t count, float* x);

}  // namespace tandem::kernels
