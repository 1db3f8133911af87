#pragma once
#include "tandem/base/tensor.h"

namespace tandem {

/// Whether `tensor` holds neither an infinity nor a NaN. Tensors of whole numbers never do; of a sparse tensor the
/// stored values count.
///
/// Reads the tensor once, on all threads, and copies nothing when its numbers lie densely in the memory of the CPU (in
/// any order of the dims). Other tensors are judged by libtorch's operators, with a copy. Not collective.
bool all_finite(const Tensor& tensor);

}  // namespace tandem
