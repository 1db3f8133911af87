#pragma once
#include "tandem/base/tensor.h"

namespace tandem::memory::detail {

/// True if nobody but `tensor` itself can see its memory, so that a new value may be written over it: one reference to
/// the tensor, one to its storage, no two elements at one place, memory that c10 allocated. A gradient that autograd's
/// engine has handed over has these counts only if no hook, no retained or captured gradient, no second consumer and no
/// view holds it. False while gradients themselves are recorded.
bool is_sole_owner(const Tensor& tensor);

/// A tensor with the sizes and strides of `like` for a result that replaces `gradient`: `gradient` itself if its memory
/// is free and laid out like that, else a new one. A gradient of another layout is copied into the new one first:
/// `gradient` has the layout of `like` afterwards.
Tensor result_over(Tensor& gradient, const Tensor& like);

}  // namespace tandem::memory::detail
