#pragma once
#include <cstdint>

#include "tandem/base/tensor.h"
#include "tandem/memory/recompute.h"

namespace tandem::memory::detail {

/// A number that depends on the bits of the tensor's values, as many as `check` says, and for dense tensors on their
/// order in memory. 0 without a check, for a sample of a tensor that is not on the CPU, and for layouts that are not
/// strided. With ValueCheck::all a tensor that is not dense is copied.
uint64_t digest_of(const Tensor& values, ValueCheck check);

}  // namespace tandem::memory::detail
