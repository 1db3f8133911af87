#pragma once
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem {

/// True if `tensor` holds neither an infinity nor a NaN; always true for integers. Of a sparse tensor the stored values
/// are checked.
///
/// A dense CPU tensor (dims in any order), and one of a device, is read once, on all threads, without a copy. Other
/// tensors are checked by libtorch's operators, which make a copy. Not collective.
bool all_finite(const Tensor& tensor);

/// Writes what all_finite() says of each tensor to `flags`, [tensors.size()] float64 on their device, as 1 or 0; an
/// undefined tensor is finite. Does not wait for a device.
void note_finite(const std::vector<Tensor>& tensors, const Tensor& flags);

}  // namespace tandem
