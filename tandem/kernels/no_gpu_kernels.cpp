#include "tandem/kernels/gpu_kernels.h"

#include <stdexcept>

#include "tandem/kernels/detail/gpu_instances.h"

namespace tandem::kernels::gpu {
namespace {

[[noreturn]] int missing() {
  throw std::logic_error("kernels: this build has none for GPUs: configure with TANDEM_CUDA=ON");
}

}  // namespace

bool are_built() { return false; }

const char* error_text(int) { missing(); }

int encode(const float*, int64_t, int8_t*, float*, void*) { missing(); }
int decode(const int8_t*, const float*, int64_t, float*, void*) { missing(); }

template <class Body>
int for_each(const Body&, int64_t, void*) {
  missing();
}

template <class S>
int activate(Curve, const S*, int64_t, S*, void*) {
  missing();
}
template <class S>
int differentiate(Curve, const S*, const S*, int64_t, S*, void*) {
  missing();
}

template <class S>
int abn_forward(const AbnForward<AbnNumber<S>>&, int64_t, int64_t, S*, uint8_t*, void*) {
  missing();
}
int64_t abn_scratch(int64_t, int64_t) { missing(); }
template <class S>
int abn_gradient_sums(const AbnBackward<S>&, int64_t, int64_t, const AbnUnfolded<S>&, double*, double*, void*, void*) {
  missing();
}
template <class S>
int abn_gradient_apply(const AbnBackward<S>&, const AbnApply<AbnNumber<S>>&, int64_t, int64_t, S*, void*) {
  missing();
}

template <class T>
int64_t score_scratch(int64_t, int64_t) {
  missing();
}
template <class T, class S>
int add_block(const Block<T, S>&, const RunningRows<T>&, void*, void*) {
  missing();
}
template <class T, class S>
int differentiate_block(const Block<T, S>&, const ShareRows<T>&, T, T*, T*, void*, void*) {
  missing();
}
template <class T, class S>
int exponentiate_block(const Block<T, S>&, int32_t*, const ExponentRows<T>&, void*, void*) {
  missing();
}
template <class T, class S>
int project_along(const S*, const T*, const T*, int64_t, int64_t, T*, void*) {
  missing();
}
template <class T, class S>
int add_along(const S*, const T*, const T*, int64_t, int64_t, T*, void*) {
  missing();
}
int add_rounded(const uint16_t*, int64_t, float*, void*) { missing(); }
template <class T>
int inverse_lengths(const T*, int64_t, int64_t, T*, void*) {
  missing();
}
int round_rows(const float*, int64_t, int64_t, uint16_t*, float*, void*) { missing(); }

TANDEM_GPU_ALL

}  // namespace tandem::kernels::gpu
