#pragma once
#include <chrono>
#include <functional>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tandem/rendezvous/environment.h"

namespace tandem::rendezvous {

struct MeetingOptions {
  std::chrono::milliseconds timeout{300'000};  // for all ranks to arrive
  std::function<bool()> stop_requested = {};   // asked while processes wait for each other
};

/// The store at which the processes of `launch` meet; returns when all of them are there. Rank 0 serves it, at its
/// address alone, unless the launcher does. All leave with the same conclusion: they go on, they stop because one was
/// asked to, or they fail because somebody did not come. A process of another number of ranks is refused and changes
/// nothing.
///
/// Throws c10::DistBackendError that names who is missing, who comes twice, who is refused or what is wrong with the
/// address, and Interrupted when options.stop_requested says so on any rank.
c10::intrusive_ptr<c10d::Store> meet(const Launch& launch, const MeetingOptions& options);

/// A name in the store that belongs to the job of this many ranks: "tandem/of4/arrived/2".
std::string key_of(const Launch& launch, const std::string& name);
std::string place_of(const Launch& launch);  // "10.0.0.1:29500"

}  // namespace tandem::rendezvous
