#pragma once
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/transport.h"
#include "tandem/comm/wire_meter.h"
#include "tandem/flight/recorder.h"

namespace c10d {
class ProcessGroup;
}

namespace tandem::comm {

class TaskQueue;

namespace detail {
struct Instruments;
class GroupCalls;
}  // namespace detail

/// A group of ranks that communicate, as seen from one of them. Functions that communicate take a group as an argument;
/// there is no global group.
///
/// Ranks and roots are numbered within the group. Each rank has its own object, also if ranks are threads; only one
/// thread may use an object at a time.
class ProcessGroup {
 public:
  /// Connects a group of the given name, rank and size; kept for split().
  using Connect = std::function<c10::intrusive_ptr<c10d::ProcessGroup>(const std::string& name, int rank, int size)>;

  /// `members`: the world ranks, in the group's order. `rank`: index of this rank in `members`. `instruments`: of the
  /// world that the group belongs to; null: it is a world of its own.
  ProcessGroup(Connect connect, std::string name, std::vector<int> members, int rank,
               std::shared_ptr<detail::Instruments> instruments = nullptr);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }

  /// Splits the group: the ranks that pass the same colour form a new group, in their old order. A rank that passes a
  /// negative colour gets null. Collective over this group.
  std::unique_ptr<ProcessGroup> split(int colour, flight::Where where = flight::Where::current());

  /// The same for ranks that know who passes their colour: no colours are sent. `ranks`: of this group, in ascending
  /// order, this one among them.
  std::unique_ptr<ProcessGroup> split(int colour, const std::vector<int>& ranks,
                                      flight::Where where = flight::Where::current());

  /// A second group of the same ranks, for calls that run beside this group's on another thread: the calls of the two
  /// never meet. The first call makes it and is collective; it ends with this group.
  ProcessGroup& beside(flight::Where where = flight::Where::current());

  /// Runs `work`, which must not throw, on a thread of the group: after the work that was queued before it, and in the
  /// caller's context. The destructor of the group waits for it.
  void queue(std::function<void()> work);

  /// How long an operation waits for a rank that does not come.
  std::chrono::milliseconds timeout() const;

  /// How CPU tensors travel, or, in a rehearsal, would.
  Transport transport() const;

  /// Counts what this rank sends, and records its last calls, through this group and through groups split from it.
  WireMeter& meter();
  flight::FlightRecorder& recorder();

  /// The underlying c10d group, for parts of libtorch that need one (c10d::Reducer).
  c10::intrusive_ptr<c10d::ProcessGroup> handle() const;

  /// For the operators (detail/group_calls.h).
  detail::GroupCalls& calls() const { return *calls_; }

 private:
  Connect connect_;
  std::string name_;
  std::vector<int> members_;
  int rank_, num_splits_ = 0;
  std::unique_ptr<detail::GroupCalls> calls_;
  std::unique_ptr<ProcessGroup> beside_;
  std::unique_ptr<TaskQueue> queue_;  // last member: destroyed first
};

/// A group of one rank, in which each collective is the identity.
std::unique_ptr<ProcessGroup> make_single_group();

/// A group of `size` ranks of which only `rank` exists: the others are imagined to make the same calls with the same
/// data, so no call waits. Each call allocates what it would among `size` real ranks, threads of one process
/// (Transport::memory) or processes; its results are of the right sizes, and otherwise mean nothing. For measuring what
/// one rank of a large job needs. No messages between two ranks.
std::unique_ptr<ProcessGroup> make_rehearsal_group(int rank, int size, Transport transport);

}  // namespace tandem::comm
