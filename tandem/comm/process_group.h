#pragma once
#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/handle.h"
#include "tandem/comm/local/task_queue.h"
#include "tandem/comm/transport.h"
#include "tandem/comm/wire_meter.h"
#include "tandem/flight/recorder.h"

namespace c10d {
class Backend;
class ProcessGroup;
}  // namespace c10d

namespace tandem::comm {

class LocalBackend;
class OwnBackend;

/// Counters and records of one rank's communication, through all of its groups.
struct Instruments {
  Instruments(int rank, int size) : recorder(rank, size) {}

  WireMeter meter;
  flight::FlightRecorder recorder;
  bool check = false;  // compare every collective call with the other ranks' before it is made; see detail/call_check.h
};

/// What a running call needs from its group; may outlive the group.
class CallLog {
 public:
  CallLog(std::string group, int world_rank, std::shared_ptr<Instruments> instruments)
      : group_(std::move(group)), world_rank_(world_rank), instruments_(std::move(instruments)) {}

  void end(uint64_t number) { instruments_->recorder.end(number); }

  /// Writes the flight record and throws c10::DistBackendError, which names the operation, the call site and the rank.
  [[noreturn]] void fail(uint64_t number, const flight::CallInfo& call, const std::exception& error);

 private:
  std::string group_;
  int world_rank_;
  std::shared_ptr<Instruments> instruments_;
};

/// A group of ranks that communicate, as seen from one of them. Functions that communicate take a group as an argument;
/// there is no global group.
///
/// Ranks and roots are numbered within the group. Each rank has its own object, also if ranks are threads; only one
/// thread may use an object at a time.
class ProcessGroup {
 public:
  /// Connects a group of the given name, rank and size; kept for split().
  using Connect = std::function<c10::intrusive_ptr<c10d::ProcessGroup>(const std::string& name, int rank, int size)>;

  /// `members`: the world ranks, in the group's order. `rank`: index of this rank in `members`.
  ProcessGroup(Connect connect, std::string name, std::vector<int> members, int rank,
               std::shared_ptr<Instruments> instruments);
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

  /// Counts what this rank sends through this group and through groups split from it.
  WireMeter& meter() { return instruments_->meter; }

  /// Records this rank's last calls through this group and through groups split from it.
  flight::FlightRecorder& recorder() { return instruments_->recorder; }

  /// If on, every collective call is compared with the calls of the other ranks before it is made. Must be the same on
  /// all ranks. Slow; for debugging.
  void set_check(bool check) { instruments_->check = check; }
  bool checks() const { return instruments_->check; }

  /// The underlying c10d group, for parts of libtorch that need one (c10d::Reducer).
  c10::intrusive_ptr<c10d::ProcessGroup> handle() const;
  /// The backend for tensors on a device: for CPU tensors Gloo or an OwnBackend; for CUDA tensors NCCL, or else a
  /// detail::StagedBackend, which has only broadcast and allreduce. Throws c10::Error if the group has none.
  c10d::Backend& backend(c10::DeviceType device = c10::DeviceType::CPU) const;
  LocalBackend* local() const { return local_; }  // null: the ranks are processes
  OwnBackend* own() const { return own_; }        // null: the ranks use Gloo

  /// How CPU tensors travel, or, in a rehearsal, would.
  Transport transport() const;

  /// How long an operation waits for a rank that does not come.
  std::chrono::milliseconds timeout() const;

  /// For the operators: begins a call. The call is numbered, counted, recorded, and checked if set_check() is on; its
  /// end must be reported to log(). Returns the number of the record. `bytes`: payload for each rank of the group, for
  /// the meter; if empty, the call is not counted.
  uint64_t begin(const flight::CallInfo& call, const std::vector<int64_t>& bytes, bool is_message = false);
  const std::shared_ptr<CallLog>& log() const { return log_; }

  /// Number of collective calls begun so far; the same on all ranks.
  int64_t num_calls() const { return num_calls_; }

  /// Runs `work`, which must not throw, on a thread of the group: after the work that was queued before it, and in the
  /// caller's context. The destructor of the group waits for it.
  void queue(std::function<void()> work);

  /// Waits for `handle` on the same thread. An error is only recorded, not thrown.
  void finish_later(Handle handle);

 private:
  Connect connect_;
  std::string name_;
  std::vector<int> members_;
  int rank_, num_splits_ = 0;
  int64_t num_calls_ = 0;
  std::map<std::pair<std::string, int>, int64_t> num_messages_;  // operation, peer
  std::shared_ptr<Instruments> instruments_;
  std::shared_ptr<CallLog> log_;
  c10::intrusive_ptr<c10d::ProcessGroup> handle_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  OwnBackend* own_ = nullptr;
  LocalBackend* local_ = nullptr;
  std::unique_ptr<ProcessGroup> beside_;
  TaskQueue queue_;  // last member: destroyed first
};

/// A group of one rank, in which each collective is the identity.
std::unique_ptr<ProcessGroup> make_single_group();

/// A group of `size` ranks of which only `rank` exists: the others are imagined to make the same calls with the same
/// data, so no call waits. Each call allocates what it would among `size` real ranks, threads of one process
/// (Transport::memory) or processes; its results are of the right sizes, and otherwise mean nothing. For measuring what
/// one rank of a large job needs. No messages between two ranks.
std::unique_ptr<ProcessGroup> make_rehearsal_group(int rank, int size, Transport transport);

}  // namespace tandem::comm
