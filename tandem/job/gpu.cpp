#include "tandem/job/gpu.h"

#include <ATen/Context.h>

#include "tandem/base/device_kernels.h"
#include "tandem/base/error.h"

namespace tandem::job {

void check_gpu() {
  if (!have_gpu_kernels(c10::DeviceType::CUDA)) {
    throw SettingsError("device is cuda, and this build has no kernels for GPUs, wanted cpu",
                        "leave device out, or use a build with TANDEM_CUDA=ON");
  }
  if (at::hasCUDA()) return;
  throw SettingsError("device is cuda, and no GPU is found, wanted cpu",
                      "leave device out, or mend what hides the GPU");
}

}  // namespace tandem::job
