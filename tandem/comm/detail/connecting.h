#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tandem/comm/world.h"

namespace tandem::comm::detail {

/// The group of the ranks that have met at `store`, when all of them are connected. Collective.
///
/// Throws c10::DistBackendError, which names the ranks that were lost meanwhile, and Interrupted when
/// options.stop_requested says so while a rank is awaited.
std::unique_ptr<ProcessGroup> connect_ranks(const c10::intrusive_ptr<c10d::Store>& store,
                                            const rendezvous::Launch& launch, const WorldOptions& options,
                                            const std::shared_ptr<Instruments>& instruments);

}  // namespace tandem::comm::detail
