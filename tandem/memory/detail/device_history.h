#pragma once
#include <c10/core/Device.h>

#include "tandem/base/error.h"

namespace tandem::memory::detail {

/// What record_device_history() throws for a device that has none.
[[noreturn]] inline void refuse_history(c10::Device device) {
  throw SettingsError("device is " + device.str() + ", wanted cuda for a snapshot, which is one of CUDA's allocator",
                      "pass device=cuda, or --page for a picture of any device");
}

}  // namespace tandem::memory::detail
