#pragma once
#include "tandem/base/tensor.h"

namespace tandem {

/// True if `tensor` holds neither an infinity nor a NaN; always true for integers. Of a sparse tensor the stored values
/// are checked.
///
/// A dense CPU tensor (dims in any order) is read once, on all threads, without a copy. Other tensors are checked by
/// libtorch's operators, which make a copy. Not collective.
bool all_finite(const Tensor& tensor);

}  // namespace tandem
