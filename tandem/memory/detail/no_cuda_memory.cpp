#include "tandem/memory/device_memory.h"

namespace tandem::memory {

std::optional<DeviceBytes> device_bytes(c10::Device) { return std::nullopt; }
void reset_device_peak(c10::Device) {}

}  // namespace tandem::memory
