#pragma once
#include <ATen/core/Tensor.h>

namespace tandem {
using at::Tensor;
}
