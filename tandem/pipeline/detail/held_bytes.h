#pragma once
#include "tandem/base/context.h"
#include "tandem/memory/meter.h"

namespace tandem::pipeline::detail {

/// Of the rank that the calling thread works for; 0 without the memory meter.
inline int64_t held_bytes() {
  const int rank = current_context().rank;
  return memory::meter_is_installed() && rank >= 0 ? memory::account(rank).live_bytes() : 0;
}

}  // namespace tandem::pipeline::detail
