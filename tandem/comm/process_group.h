#pragma once
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "tandem/comm/wire_meter.h"

namespace c10d {
class ProcessGroup;
class Store;
class Work;
}  // namespace c10d

namespace tandem::comm {

class LocalExchange;

/// The ranks that talk to each other, seen from one of them. Passed to whatever communicates; nothing is global.
///
/// Ranks and roots are group-local. One thread uses a group at a time. Threads: each rank has its own object.
class ProcessGroup {
 public:
  /// How a group of a given name, rank and size connects; kept for split().
  using Connect = std::function<c10::intrusive_ptr<c10d::ProcessGroup>(const std::string& name, int rank, int size)>;

  ProcessGroup(Connect connect, std::string name, int rank, int size, std::shared_ptr<WireMeter> meter);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }

  /// The ranks that give the same colour make a group; they keep their order. Collective over this group.
  std::unique_ptr<ProcessGroup> split(int colour);

  /// Counts what this rank sends through this group and those split from it.
  WireMeter& meter() { return *meter_; }

  /// The c10d group below, for parts of libtorch that want one (c10d::Reducer).
  c10::intrusive_ptr<c10d::ProcessGroup> handle() const;

  /// Waits; a failure becomes c10::DistBackendError that names operation, count of this group's calls, and rank.
  void wait(const c10::intrusive_ptr<c10d::Work>& work, const char* operation);

  /// What wait() throws, for who waits in another way.
  [[noreturn]] void fail(const char* operation, const std::exception& error) const;

 private:
  Connect connect_;
  std::string name_;
  int rank_, size_, num_splits_ = 0;
  int64_t num_calls_ = 0;
  std::shared_ptr<WireMeter> meter_;
  c10::intrusive_ptr<c10d::ProcessGroup> handle_;
};

/// A group of one: each collective is the identity.
std::unique_ptr<ProcessGroup> make_single_group();

}  // namespace tandem::comm
