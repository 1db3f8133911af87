#pragma once
#include "tandem/flight/call_info.h"

namespace c10d {
class Backend;
}

namespace tandem::comm::detail {

/// Compares this rank's collective call with those of the others (one all_gather of 256 bytes a rank) and throws
/// c10::DistBackendError on all of them when one calls another operation, type, size, root or reduction, in another
/// order, or with an input that needs a gradient where the others' do not: the backward pass would wait for ever.
void check_call(c10d::Backend& backend, const flight::CallInfo& call, int64_t sequence);

}  // namespace tandem::comm::detail
