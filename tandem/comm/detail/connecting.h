#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tandem/comm/detail/group_calls.h"
#include "tandem/comm/world.h"

namespace tandem::comm::detail {

/// Connects the ranks that have met at `store` and returns their group. Collective.
///
/// Throws c10::DistBackendError, which names the ranks that were lost meanwhile, and Interrupted if
/// options.stop_requested() returns true while this rank waits for others.
std::unique_ptr<ProcessGroup> connect_ranks(const c10::intrusive_ptr<c10d::Store>& store,
                                            const rendezvous::Launch& launch, const WorldOptions& options,
                                            const std::shared_ptr<Instruments>& instruments);

}  // namespace tandem::comm::detail
