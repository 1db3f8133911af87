#pragma once
#include <cstdint>

/// Smooth activations and their gradients over contiguous numbers, on one thread. T is float, double, or uint16_t
/// holding bfloat16, for which the arithmetic is in float.
namespace tandem::kernels {

enum class Curve {
  swish,  // x s(x), s(x) = 1 / (1 + e^-x)
  mish,   // x tanh(ln(1 + e^x))
  gelu,   // x P(x), P: the distribution function of the standard normal distribution
};

/// y[i] = curve(x[i]); y may be x. A NaN stays a NaN. Error: a few units in the last place of T, of the result or,
/// where |x| is larger than |y|, of x y'(x).
void activate(Curve curve, const float* x, int64_t count, float* y);
void activate(Curve curve, const double* x, int64_t count, double* y);
void activate(Curve curve, const uint16_t* x, int64_t count, uint16_t* y);

/// out[i] = gradient[i] * curve'(x[i]); `out` may be `gradient` or `x`.
void differentiate(Curve curve, const float* x, const float* gradient, int64_t count, float* out);
void differentiate(Curve curve, const double* x, const double* gradient, int64_t count, double* out);
void differentiate(Curve curve, const uint16_t* x, const uint16_t* gradient, int64_t count, uint16_t* out);

}  // namespace tandem::kernels
