#pragma once
#include <cstdint>

namespace tandem::memory::detail {

/// The bytes that this machine can give to tensors of this process now: what is free of memory and swap space, or what
/// the control group allows, less a thirty-second for all else that the process needs.
int64_t machine_memory();

}  // namespace tandem::memory::detail
