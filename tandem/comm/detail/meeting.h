#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tandem/comm/world.h"

namespace tandem::comm::detail {

/// The store at which the processes of `launch` meet; returns when all of them are there. Rank 0 serves it, at its
/// address alone, unless the launcher does. All leave with the same conclusion: they go on, they stop because one was
/// asked to, or they fail because somebody did not come. A process of another number of ranks is refused and changes
/// nothing.
///
/// Throws c10::DistBackendError that names who is missing, who comes twice, who is refused or what is wrong with the
/// address, and Interrupted when options.stop_requested says so on any rank.
c10::intrusive_ptr<c10d::Store> meet(const Launch& launch, const WorldOptions& options);

/// A name in the store that belongs to the job of this many ranks: "tandem/of4/arrived/2".
std::string key_of(const Launch& launch, const std::string& name);
std::string place_of(const Launch& launch);  // "10.0.0.1:29500"

}  // namespace tandem::comm::detail
