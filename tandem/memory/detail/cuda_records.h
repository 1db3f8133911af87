#pragma once

namespace tandem::memory::detail {

/// From now on the caching allocator of CUDA tells the meter what it gives and takes back (device_meter.h). Later
/// calls, and calls without a GPU, have no effect.
void note_cuda_memory();

}  // namespace tandem::memory::detail
