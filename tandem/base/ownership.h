#pragma once
#include "tandem/base/tensor.h"

namespace tandem {

/// Counts a tensor's memory for the calling thread's context (base/context.h) from now on: another rank has allocated
/// it and given it away. Has no effect without a meter.
void adopt(const Tensor& tensor);

/// For the meter: what adopt() does.
void set_adopt(void (*action)(const Tensor& tensor));

}  // namespace tandem
