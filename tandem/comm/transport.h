#pragma once
#include <cstdint>

namespace tandem::comm {

/// How CPU tensors travel between ranks.
enum class Transport : uint8_t {
  memory,    // threads of one process: they read each other's tensors
  segments,  // processes of one host: through memory that all of them map
  sockets    // any processes
};

/// "memory", "segments", "sockets".
const char* name_of(Transport transport);

}  // namespace tandem::comm
