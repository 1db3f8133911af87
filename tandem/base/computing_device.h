#pragma once
#include <c10/core/Stream.h>

#include <optional>

namespace tandem {

/// The kind of device on which the ranks of this process compute, as their world was told (comm::WorldOptions); at
/// first the CPU. What must be done for streams is done only where it is another one.
void set_computing_device(c10::DeviceType type);

/// The calling thread's current stream on its device; nullopt where ranks compute on the CPU.
std::optional<c10::Stream> own_stream();

}  // namespace tandem
