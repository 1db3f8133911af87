#include "tandem/kernels/abn_kernels.h"

#include "tandem/kernels/detail/abn_rows.h"

namespace tandem::kernels {

using namespace detail;

TANDEM_FOR_EACH_CPU void abn_moments(const uint16_t* x, int64_t rows, int64_t channels, double* sum, double* square) {
  if (fills_vectors<uint16_t>(channels)) return moments_as<true>(x, rows, channels, sum, square);
  moments_as<false>(x, rows, channels, sum, square);
}
TANDEM_FOR_EACH_CPU void abn_forward(const AbnForward<float>& how, int64_t rows, int64_t channels, uint16_t* x,
                                     uint8_t* sides) {
  if (fills_vectors<uint16_t>(channels)) return forward_of<true>(how, rows, channels, x, sides);
  forward_of<false>(how, rows, channels, x, sides);
}
TANDEM_FOR_EACH_CPU void abn_gradient_sums(const AbnBackward<uint16_t>& in, bool wide, int64_t rows, int64_t channels,
                                           double* sum, double* product) {
  const bool whole = fills_vectors<uint16_t>(channels);
  if (whole && wide) return sums_of<true, true>(in, rows, channels, sum, product);
  if (whole) return sums_of<true, false>(in, rows, channels, sum, product);
  sums_of<false, true>(in, rows, channels, sum, product);
}
TANDEM_FOR_EACH_CPU void abn_gradient_apply(const AbnBackward<uint16_t>& in, const AbnApply<float>& how, int64_t rows,
                                            int64_t channels, uint16_t* out) {
  if (fills_vectors<uint16_t>(channels)) return apply_of<true>(in, how, rows, channels, out);
  apply_of<false>(in, how, rows, channels, out);
}

}  // namespace tandem::kernels
