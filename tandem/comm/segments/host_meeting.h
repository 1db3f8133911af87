#pragma once
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tandem/comm/segments/stage.h"

namespace tandem::comm {

/// Finds out whether all ranks of a group are on one host, and lets them map each other's memory.
///
/// Ranks are on one host if the machine has been started once for all of them and they share its namespaces of
/// processes and of networks: containers that do not count as different hosts.
class HostMeeting {
 public:
  /// Makes this rank's segment, with room for a SegmentMailbox, and tells the others about it at `store`. Before the
  /// ranks have connected.
  HostMeeting(c10::intrusive_ptr<c10d::Store> store, int rank, int size);
  ~HostMeeting();

  /// Returns null unless all ranks have been told about, are on one host and have mapped all segments. Collective over
  /// `connected`, in which all ranks have connected after they came here.
  std::unique_ptr<Stage> stage(c10d::Backend& connected, std::chrono::milliseconds timeout);

 private:
  struct Address;
  std::vector<Address> read_addresses() const;
  std::shared_ptr<Segment> attach(const Address& address) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, size_;
  std::shared_ptr<Segment> own_;
};

}  // namespace tandem::comm
