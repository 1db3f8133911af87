#pragma once
#include <cstdint>

#include "tandem/base/tensor.h"

namespace tandem {

/// The kernels of tandem/kernels that work on whole arrays, by what they are for.
enum class Kernels : uint8_t { activation, inplace_abn, running_statistics, batch_norm, scores, codes };

/// Whether such kernels run where `x` lies, by its device and its element type: one table says which do where. On
/// other tensors libtorch's operators do the same work. The layouts that a kernel wants are for its caller to check.
bool have_kernels(Kernels kernels, const Tensor& x);

/// In the whole process, as if no device had these kernels; for tests, which compare the two.
void leave_to_operators(Kernels kernels, bool on);

/// Whether kernels/gpu_kernels.h takes the memory of such devices: the classifier wants it to.
bool have_gpu_kernels(c10::DeviceType type);

/// The type of the devices whose memory kernels/gpu_kernels.h takes: by default CUDA in a build that has them, else the
/// CPU's, which stands for none. Tests put an imitation there.
void set_gpu_kernels(c10::DeviceType type);

}  // namespace tandem
