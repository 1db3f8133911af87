#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tandem/rendezvous/meeting.h"
#include "tandem/rendezvous/patience.h"

namespace tandem::rendezvous::detail {

/// True if this process serves the store: rank 0 does, unless the launcher does.
bool serves(const Launch& launch);

/// Opens the store of `launch`, as its server or as a client. Throws c10::DistBackendError (a bad address or port, a
/// server that does not answer in time) and Interrupted.
c10::intrusive_ptr<c10d::Store> open_store(const Launch& launch, const MeetingOptions& options,
                                           const Patience& patience);

}  // namespace tandem::rendezvous::detail
