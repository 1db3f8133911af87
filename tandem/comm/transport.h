#pragma once
#include <cstdint>

namespace tandem::comm {

/// How CPU tensors travel between ranks: threads of one process read each other's memory, processes use sockets.
enum class Transport : uint8_t { memory, sockets };

}  // namespace tandem::comm
