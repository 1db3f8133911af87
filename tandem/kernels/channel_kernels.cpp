#include "tandem/kernels/channel_kernels.h"

#include "tandem/base/vectors.h"

namespace tandem::kernels {
namespace {

using Floats = Vector<float>;

template <class T>
TANDEM_INLINE void moments_of(const T* x, int64_t rows, int64_t channels, float* sum, float* square) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    const Floats first = load(x + c);
    Floats sums{}, squares{};
    for (int64_t r = 0; r < rows; ++r) {
      const Floats difference = load(x + r * channels + c) - first;
      sums += difference;
      squares += difference * difference;
    }
    store(sums, sum + c);
    store(squares, square + c);
  }
}

template <bool relu, bool add, class T>
TANDEM_INLINE void scale_shift_as(const T* x, const T* residual, const float* scale, const float* offset, int64_t rows,
                                  int64_t channels, T* y) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < channels; c += kLanes) {
      const int64_t at = r * channels + c;
      Floats values = load(x + at) * load(scale + c) + load(offset + c);
      if constexpr (add) values += load(residual + at);
      if constexpr (relu) values = values < 0.0F ? Floats{} : values;  // a NaN passes, as in torch
      store(values, y + at);
    }
  }
}

template <class T>
TANDEM_INLINE void scale_shift_of(const T* x, const T* residual, const float* scale, const float* offset, bool relu,
                                  int64_t rows, int64_t channels, T* y) {
  if (relu && residual) return scale_shift_as<true, true>(x, residual, scale, offset, rows, channels, y);
  if (relu) return scale_shift_as<true, false>(x, residual, scale, offset, rows, channels, y);
  if (residual) return scale_shift_as<false, true>(x, residual, scale, offset, rows, channels, y);
  scale_shift_as<false, false>(x, residual, scale, offset, rows, channels, y);
}

template <Mask mask, class T>
TANDEM_INLINE Floats masked_gradient(const Backward<T>& in, Floats x, int64_t at, int64_t c) {
  const Floats gradient = load(in.grad + at);
  if constexpr (mask == Mask::input) {
    return x * load(in.scale + c) + load(in.offset + c) <= 0.0F ? Floats{} : gradient;
  }
  if constexpr (mask == Mask::output) return load(in.y + at) <= 0.0F ? Floats{} : gradient;
  return gradient;
}

template <Mask mask, bool keep, class T>
TANDEM_INLINE void gradient_moments_as(const Backward<T>& in, int64_t rows, int64_t channels, float* sum,
                                       float* product, T* masked) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    const Floats mean = load(in.mean + c);
    Floats sums{}, products{};
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = r * channels + c;
      const Floats x = load(in.x + at);
      const Floats gradient = masked_gradient<mask>(in, x, at, c);
      if constexpr (keep) store(gradient, masked + at);
      sums += gradient;
      products += gradient * (x - mean);
    }
    store(sums, sum + c);
    store(products, product + c);
  }
}

template <class T>
TANDEM_INLINE void gradient_moments_of(const Backward<T>& in, int64_t rows, int64_t channels, float* sum,
                                       float* product, T* masked) {
  if (in.mask == Mask::input) return gradient_moments_as<Mask::input, false>(in, rows, channels, sum, product, masked);
  if (in.mask == Mask::output) return gradient_moments_as<Mask::output, true>(in, rows, channels, sum, product, masked);
  gradient_moments_as<Mask::none, false>(in, rows, channels, sum, product, masked);
}

template <Mask mask, class T>
TANDEM_INLINE void gradient_apply_as(const Backward<T>& in, const float* slope, const float* shift, int64_t rows,
                                     int64_t channels, T* grad_x) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < channels; c += kLanes) {
      const int64_t at = r * channels + c;
      const Floats x = load(in.x + at);
      const Floats gradient = masked_gradient<mask>(in, x, at, c);
      store(gradient * load(in.scale + c) + ((x - load(in.mean + c)) * load(slope + c) + load(shift + c)), grad_x + at);
    }
  }
}

template <class T>
TANDEM_INLINE void gradient_apply_of(const Backward<T>& in, const float* slope, const float* shift, int64_t rows,
                                     int64_t channels, T* grad_x) {
  if (in.mask == Mask::input) return gradient_apply_as<Mask::input>(in, slope, shift, rows, channels, grad_x);
  gradient_apply_as<Mask::none>(in, slope, shift, rows, channels, grad_x);
}

}  // namespace

TANDEM_FOR_EACH_CPU void moments(const float* x, int64_t rows, int64_t channels, float* sum, float* square) {
  moments_of(x, rows, channels, sum, square);
}
TANDEM_FOR_EACH_CPU void moments(const uint16_t* x, int64_t rows, int64_t channels, float* sum, float* square) {
  moments_of(x, rows, channels, sum, square);
}

TANDEM_FOR_EACH_CPU void scale_shift(const float* x, const float* residual, const float* scale, const float* offset,
                                     bool relu, int64_t rows, int64_t channels, float* y) {
  scale_shift_of(x, residual, scale, offset, relu, rows, channels, y);
}
TANDEM_FOR_EACH_CPU void scale_shift(const uint16_t* x, const uint16_t* residual, const float* scale,
                                     const float* offset, bool relu, int64_t rows, int64_t channels, uint16_t* y) {
  scale_shift_of(x, residual, scale, offset, relu, rows, channels, y);
}

TANDEM_FOR_EACH_CPU void gradient_moments(const Backward<float>& in, int64_t rows, int64_t channels, float* sum,
                                          float* product, float* masked) {
  gradient_moments_of(in, rows, channels, sum, product, masked);
}
TANDEM_FOR_EACH_CPU void gradient_moments(const Backward<uint16_t>& in, int64_t rows, int64_t channels, float* sum,
                                          float* product, uint16_t* masked) {
  gradient_moments_of(in, rows, channels, sum, product, masked);
}

TANDEM_FOR_EACH_CPU void gradient_apply(const Backward<float>& in, const float* slope, const float* shift, int64_t rows,
                                        int64_t channels, float* grad_x) {
  gradient_apply_of(in, slope, shift, rows, channels, grad_x);
}
TANDEM_FOR_EACH_CPU void gradient_apply(const Backward<uint16_t>& in, const float* slope, const float* shift,
                                        int64_t rows, int64_t channels, uint16_t* grad_x) {
  gradient_apply_of(in, slope, shift, rows, channels, grad_x);
}

}  // namespace tandem::kernels
