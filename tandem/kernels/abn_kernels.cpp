#include "tandem/kernels/abn_kernels.h"

#include "tandem/kernels/detail/abn_rows.h"

namespace tandem::kernels {

using namespace detail;

TANDEM_FOR_EACH_CPU void abn_moments(const float* x, int64_t rows, int64_t channels, double* sum, double* square) {
  if (fills_vectors<float>(channels)) return moments_as<true>(x, rows, channels, sum, square);
  moments_as<false>(x, rows, channels, sum, square);
}
TANDEM_FOR_EACH_CPU void abn_forward(const AbnForward<float>& how, int64_t rows, int64_t channels, float* x,
                                     uint8_t* sides) {
  if (fills_vectors<float>(channels)) return forward_of<true>(how, rows, channels, x, sides);
  forward_of<false>(how, rows, channels, x, sides);
}
TANDEM_FOR_EACH_CPU void abn_gradient_sums(const AbnBackward<float>& in, bool wide, int64_t rows, int64_t channels,
                                           double* sum, double* product) {
  const bool whole = fills_vectors<float>(channels);
  if (whole && wide) return sums_of<true, true>(in, rows, channels, sum, product);
  if (whole) return sums_of<true, false>(in, rows, channels, sum, product);
  sums_of<false, true>(in, rows, channels, sum, product);
}
TANDEM_FOR_EACH_CPU void abn_unfold_swish(const AbnBackward<float>& in, bool wide, int64_t rows, int64_t channels,
                                          double* sum, double* product, const AbnUnfolded<float>& to) {
  if (fills_vectors<float>(channels)) return unfold_as<true>(in, wide, rows, channels, sum, product, to);
  unfold_as<false>(in, wide, rows, channels, sum, product, to);
}
TANDEM_FOR_EACH_CPU void abn_gradient_apply(const AbnBackward<float>& in, const AbnApply<float>& how, int64_t rows,
                                            int64_t channels, float* out) {
  if (fills_vectors<float>(channels)) return apply_of<true>(in, how, rows, channels, out);
  apply_of<false>(in, how, rows, channels, out);
}
TANDEM_FOR_EACH_CPU void invert_swish(const float* z, const uint8_t* sides, int64_t rows, int64_t channels, float* y) {
  invert_rows(z, sides, rows, channels, y);
}

TANDEM_FOR_EACH_CPU void abn_moments(const double* x, int64_t rows, int64_t channels, double* sum, double* square) {
  if (fills_vectors<double>(channels)) return moments_as<true>(x, rows, channels, sum, square);
  moments_as<false>(x, rows, channels, sum, square);
}
TANDEM_FOR_EACH_CPU void abn_forward(const AbnForward<double>& how, int64_t rows, int64_t channels, double* x,
                                     uint8_t* sides) {
  if (fills_vectors<double>(channels)) return forward_of<true>(how, rows, channels, x, sides);
  forward_of<false>(how, rows, channels, x, sides);
}
TANDEM_FOR_EACH_CPU void abn_gradient_sums(const AbnBackward<double>& in, bool wide, int64_t rows, int64_t channels,
                                           double* sum, double* product) {
  const bool whole = fills_vectors<double>(channels);
  if (whole && wide) return sums_of<true, true>(in, rows, channels, sum, product);
  if (whole) return sums_of<true, false>(in, rows, channels, sum, product);
  sums_of<false, true>(in, rows, channels, sum, product);
}
TANDEM_FOR_EACH_CPU void abn_unfold_swish(const AbnBackward<double>& in, bool wide, int64_t rows, int64_t channels,
                                          double* sum, double* product, const AbnUnfolded<double>& to) {
  if (fills_vectors<double>(channels)) return unfold_as<true>(in, wide, rows, channels, sum, product, to);
  unfold_as<false>(in, wide, rows, channels, sum, product, to);
}
TANDEM_FOR_EACH_CPU void abn_gradient_apply(const AbnBackward<double>& in, const AbnApply<double>& how, int64_t rows,
                                            int64_t channels, double* out) {
  if (fills_vectors<double>(channels)) return apply_of<true>(in, how, rows, channels, out);
  apply_of<false>(in, how, rows, channels, out);
}
TANDEM_FOR_EACH_CPU void invert_swish(const double* z, const uint8_t* sides, int64_t rows, int64_t channels,
                                      double* y) {
  invert_rows(z, sides, rows, channels, y);
}

}  // namespace tandem::kernels
