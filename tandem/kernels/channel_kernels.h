#pragma once
#include <cstdint>

/// Loops over rows of channels ([rows, channels], contiguous, channels a multiple of kLanes) on one thread. T is float,
/// or uint16_t holding bfloat16. Every per-channel array is float.
namespace tandem::kernels {

inline constexpr int64_t kLanes = 16;

/// Where the backward pass of the rectifier sets the gradient to 0.
enum class Mask {
  none,    // nowhere: there is no rectifier
  input,   // where x * scale + offset is not positive
  output,  // where y is not positive
};

/// sum[c] = sum of x[r, c] - x[0, c], square[c] = sum of the squares of these differences. Subtracting x[0, c] avoids
/// cancellation if the mean is far from zero.
void moments(const float* x, int64_t rows, int64_t channels, float* sum, float* square);
void moments(const uint16_t* x, int64_t rows, int64_t channels, float* sum, float* square);

/// y = x * scale + offset (+ residual if not null); negative values become 0 if `relu`.
void scale_shift(const float* x, const float* residual, const float* scale, const float* offset, bool relu,
                 int64_t rows, int64_t channels, float* y);
void scale_shift(const uint16_t* x, const uint16_t* residual, const float* scale, const float* offset, bool relu,
                 int64_t rows, int64_t channels, uint16_t* y);

template <class T>
struct Backward {
  Mask mask;
  const T* grad;  // of y
  const T* x;
  const T* y;  // for Mask::output
  const float *scale, *offset, *mean;
};

/// With g = masked gradient: sum[c] = sum of g, product[c] = sum of g * (x - mean). Writes g to `masked` unless it is
/// null.
void gradient_moments(const Backward<float>& in, int64_t rows, int64_t channels, float* sum, float* product,
                      float* masked);
void gradient_moments(const Backward<uint16_t>& in, int64_t rows, int64_t channels, float* sum, float* product,
                      uint16_t* masked);

/// grad_x = g * scale + (x - mean) * slope + shift.
void gradient_apply(const Backward<float>& in, const float* slope, const float* shift, int64_t rows, int64_t channels,
                    float* grad_x);
void gradient_apply(const Backward<uint16_t>& in, const float* slope, const float* shift, int64_t rows,
                    int64_t channels, uint16_t* grad_x);

}  // namespace tandem::kernels
