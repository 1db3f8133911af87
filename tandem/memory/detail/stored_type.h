#pragma once
#include <cstdint>

#include "tandem/base/tensor.h"

namespace tandem::memory::detail {

/// Calls run(a value of the type in which kernels see the tensor's numbers): float, double, or uint16_t for bfloat16.
template <class Run>
void as_stored(const Tensor& values, const Run& run) {
  if (values.scalar_type() == at::kFloat) return run(float{});
  if (values.scalar_type() == at::kDouble) return run(double{});
  run(uint16_t{});
}

}  // namespace tandem::memory::detail
