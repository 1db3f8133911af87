#pragma once
#include <functional>
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::parallel::detail {

constexpr int64_t kMessageBytes = 1 << 20;

/// Calls `send` with the numbers of the tensors, which it may change, in messages: contiguous tensors of one dim and
/// type, of about 1 MiB; a larger tensor is one message. The tensors then hold what `send` left. The messages of equal
/// lists are equal on all ranks. Memory: one message, and a copy of those of its tensors that are not contiguous; none
/// for a contiguous tensor that travels alone. No gradient is recorded.
void for_each_message(const std::vector<Tensor>& tensors, const std::function<void(const Tensor& message)>& send);

}  // namespace tandem::parallel::detail
