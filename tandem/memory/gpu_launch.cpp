#include "tandem/memory/gpu_launch.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tandem/kernels/gpu_kernels.h"

namespace tandem::memory {

GpuLaunch::GpuLaunch(const Tensor& x)
    : guard_(x.device()),
      stream_(c10::impl::VirtualGuardImpl(x.device().type()).getStream(x.device()).native_handle()),
      device_(x.device()) {}

void* GpuLaunch::scratch(int64_t bytes) {
  if (bytes == 0) return nullptr;
  scratch_ = at::empty({bytes}, at::device(device_).dtype(at::kByte));
  return scratch_.mutable_data_ptr();
}

void GpuLaunch::check(int error) {
  TORCH_CHECK(error == 0, "a kernel was not started: ", kernels::gpu::error_text(error));
}

}  // namespace tandem::memory
