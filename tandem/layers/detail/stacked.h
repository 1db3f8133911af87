#pragma once
#include <span>

#include "tandem/base/tensor.h"

namespace tandem::layers::detail {

/// Contiguous tensors as one, along their first dim. Those that lie one behind the other in one memory are not copied,
/// and neither are their gradients.
Tensor stacked(std::span<const Tensor> parts);

}  // namespace tandem::layers::detail
