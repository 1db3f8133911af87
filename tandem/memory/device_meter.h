#pragma once
#include <c10/core/Device.h>

#include <cstddef>

// The meter (meter.h) of memory that is not the CPU's. The same books tell of it, with the same ranks, categories and
// blocks: a process counts one kind of memory, that in which its ranks compute.
namespace tandem::memory {

/// From now on the books tell of memory of this kind; by default of the CPU's. What was counted before stays in the
/// books until it is freed. For CUDA, the caching allocator's allocations as tensors ask for them, without its
/// rounding, are counted from the first call on. Has no effect without a meter, and in a build without CUDA only `type`
/// is noted.
void meter_memory_of(c10::DeviceType type);

/// What an allocator of such devices calls. Without a meter, or while other memory is counted, nothing is noted.
/// `address`: of the memory, not null. Throws c10::OutOfMemoryError beyond a rank's limit (LimitScope) if `may_refuse`;
/// then nothing is noted.
void note_allocation(const void* address, size_t bytes, bool may_refuse);
void note_release(const void* address);

}  // namespace tandem::memory
