#pragma once
#include <cstdint>

namespace tandem::memory::detail {

/// The bytes that this machine can give to all its processes: memory and swap space, or what a control group allows.
int64_t machine_memory();

}  // namespace tandem::memory::detail
