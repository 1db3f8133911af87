#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tandem/comm/world.h"

namespace tandem::comm::detail {

/// The store at which the processes of `launch` meet; returns when all of them are there.
///
/// Throws c10::DistBackendError that names who is missing, who comes twice, or what is wrong with the address, and
/// Interrupted when options.stop_requested says so.
c10::intrusive_ptr<c10d::Store> meet(const Launch& launch, const WorldOptions& options);

}  // namespace tandem::comm::detail
