#pragma once
#include "tandem/flight/call_info.h"

namespace c10d {
class Backend;
}

namespace tandem::comm::detail {

/// Compares this rank's collective call with the calls of the other ranks (one all_gather of 320 bytes per rank).
/// Throws c10::DistBackendError on all ranks if the calls differ in operation, order, type, size, split, root or
/// reduction, or if the input requires a gradient on some ranks only: the backward pass would then wait for ever.
void check_call(c10d::Backend& backend, const flight::CallInfo& call, int64_t sequence);

}  // namespace tandem::comm::detail
