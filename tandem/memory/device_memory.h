#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tandem::memory {

/// Bytes that this process has requested from the allocator of a device with its own memory, as tensors ask for them:
/// without the allocator's rounding, cache and CUDA's own memory.
struct DeviceBytes {
  int64_t live = 0, peak = 0;
};

/// Of `device`, or without an index of the calling thread's current device of that kind. Returns nullopt for a device
/// whose memory is not counted here: the CPU, which has the meter (meter.h), and any device in a build without CUDA.
std::optional<DeviceBytes> device_bytes(c10::Device device);

/// Sets the peak to the live bytes. Has no effect where device_bytes() returns nullopt.
void reset_device_peak(c10::Device device);

/// From now on the allocator of the calling thread's GPU may hold so many bytes, its cache included, which it empties
/// first; an allocation beyond that throws c10::OutOfMemoryError. nullopt, as at first: what the GPU has. Has no effect
/// without a GPU.
void limit_device(std::optional<int64_t> bytes);

/// From now on the allocator of the GPUs notes each allocation and release, for device_snapshot(). Throws
/// SettingsError, naming `device`, for a device for which device_bytes() returns nullopt.
void record_device_history(c10::Device device);

/// The segments and blocks that the allocator of the GPUs holds, and the allocations and releases since
/// record_device_history(): a pickle that https://pytorch.org/memory_viz opens. Empty without a GPU.
std::string device_snapshot();

}  // namespace tandem::memory
