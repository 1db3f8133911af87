#pragma once
#include "tandem/memory/abn_passes.h"

// abn_forward() and abn_backward() of abn_passes.h for tensors that kernels/gpu_kernels.h takes. No number is read by
// the host. Moments are libtorch's, in float or, for float64, in double.
namespace tandem::memory::detail {

AbnKept abn_forward_on_gpu(const Tensor& x, kernels::Invertible activation, const AbnState& state, bool training,
                           AbnForm form);

AbnGradients abn_backward_on_gpu(const AbnKept& kept, Tensor gradient, const Tensor& z);

}  // namespace tandem::memory::detail
