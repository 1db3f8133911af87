#pragma once
#include <initializer_list>

#include "tandem/base/tensor.h"

namespace tandem::operators::detail {

/// True if all are ordinary CPU tensors and nobody watches the operators that are called: no tracing, no fake tensors,
/// no transform, no subclass, no dispatch mode. Then a graph node may read and write memory directly; otherwise what
/// forward and backward do must be operators that the dispatcher sees.
bool runs_eagerly(std::initializer_list<Tensor> tensors);

/// Throws c10::NotImplementedError if some tensor has a tangent: no operator here has a derivative in forward mode.
void refuse_tangents(const char* name, std::initializer_list<Tensor> tensors);

}  // namespace tandem::operators::detail
