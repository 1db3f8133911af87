#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "tandem/rendezvous/environment.h"

namespace tandem::rendezvous {

struct MeetingOptions {
  std::chrono::milliseconds timeout{300'000};  // for all ranks to arrive
  std::function<bool()> stop_requested = {};   // polled while ranks wait for each other
  std::string card = {};                       // what this rank tells the others
};

struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;
  std::vector<std::string> cards;  // by rank; empty if a rank has told nothing, as one of another library
};

/// Waits until all processes of `launch` have arrived and returns the store at which they met. Must be called on every
/// rank. Rank 0 serves the store unless the launcher does; it listens only at MASTER_ADDR (if that is a loopback
/// address and there are other hosts: at all its addresses). All ranks come to the same conclusion: they go on, they
/// stop because one of them was asked to, or they fail because a rank did not come. A process with another number of
/// ranks is refused and does not affect the others.
///
/// Throws c10::DistBackendError that says who is missing, comes twice or is refused, or what is wrong with the address;
/// Interrupted if options.stop_requested returns true on any rank.
Meeting meet(const Launch& launch, const MeetingOptions& options);

/// The key of `name` in the store, for the job with this number of ranks: "tandem/of4/arrived/2".
std::string key_of(const Launch& launch, const std::string& name);
std::string place_of(const Launch& launch);  // "10.0.0.1:29500", "[::1]:29500"

}  // namespace tandem::rendezvous
