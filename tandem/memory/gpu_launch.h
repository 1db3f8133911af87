#pragma once
#include <c10/core/DeviceGuard.h>

#include <cstdint>

#include "tandem/base/tensor.h"

namespace tandem::memory {

/// What a caller of kernels/gpu_kernels.h needs of libtorch: while the object lives, the current device is that of a
/// tensor, for whose current stream the kernels are.
class GpuLaunch {
 public:
  explicit GpuLaunch(const Tensor& x);

  void* stream() const { return stream_; }

  /// Device memory of so many bytes, which may be used until the object ends; null for 0. Once for each object.
  void* scratch(int64_t bytes);

  /// Throws c10::Error for what a kernel returns that was refused.
  static void check(int error);

 private:
  c10::DeviceGuard guard_;
  void* stream_;
  c10::Device device_;
  Tensor scratch_;
};

}  // namespace tandem::memory
