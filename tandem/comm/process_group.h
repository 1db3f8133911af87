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
#include "tandem/comm/wire_meter.h"
#include "tandem/flight/recorder.h"

namespace c10d {
class Backend;
class ProcessGroup;
}  // namespace c10d

namespace tandem::comm {

class LocalBackend;

/// What watches one rank's communication, through all of its groups.
struct Instruments {
  Instruments(int rank, int size) : recorder(rank, size) {}

  WireMeter meter;
  flight::FlightRecorder recorder;
  bool check = false;  // compare every collective call with the other ranks' before it is made; see detail/call_check.h
};

/// What a call under way needs of its group; may outlive it.
class CallLog {
 public:
  CallLog(std::string group, int world_rank, std::shared_ptr<Instruments> instruments)
      : group_(std::move(group)), world_rank_(world_rank), instruments_(std::move(instruments)) {}

  void end(uint64_t number) { instruments_->recorder.end(number); }

  /// Writes the flight record and throws c10::DistBackendError that names operation, place and rank.
  [[noreturn]] void fail(uint64_t number, const flight::CallInfo& call, const std::exception& error);

 private:
  std::string group_;
  int world_rank_;
  std::shared_ptr<Instruments> instruments_;
};

/// The ranks that talk to each other, seen from one of them. Passed to whatever communicates; nothing is global.
///
/// Ranks and roots are group-local. One thread uses a group at a time. Threads: each rank has its own object.
class ProcessGroup {
 public:
  /// How a group of a given name, rank and size connects; kept for split().
  using Connect = std::function<c10::intrusive_ptr<c10d::ProcessGroup>(const std::string& name, int rank, int size)>;

  /// `members`: the world ranks, in the group's order; `rank` is this one's place among them.
  ProcessGroup(Connect connect, std::string name, std::vector<int> members, int rank,
               std::shared_ptr<Instruments> instruments);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }

  /// The ranks that give the same colour make a group; they keep their order. A negative colour: in none, null.
  /// Collective over this group.
  std::unique_ptr<ProcessGroup> split(int colour, flight::Where where = flight::Where::current());

  /// Counts what this rank sends through this group and those split from it.
  WireMeter& meter() { return instruments_->meter; }

  /// Its last calls, through this group and those split from it.
  flight::FlightRecorder& recorder() { return instruments_->recorder; }

  /// Compare every collective call with the other ranks' before it is made; all ranks alike. Slow: for finding faults.
  void set_check(bool check) { instruments_->check = check; }
  bool checks() const { return instruments_->check; }

  /// The c10d group below, for parts of libtorch that want one (c10d::Reducer).
  c10::intrusive_ptr<c10d::ProcessGroup> handle() const;
  /// Gloo or the local one; for CUDA tensors NCCL, in a build with CUDA. Throws c10::Error when the group has none.
  c10d::Backend& backend(c10::DeviceType device = c10::DeviceType::CPU) const;
  LocalBackend* local() const { return local_; }  // null: the ranks are processes

  /// How long an operation waits for a rank that does not come.
  std::chrono::milliseconds timeout() const;

  /// For the operators: a call begins; it is numbered, counted, recorded, and checked when that is on. The log hears of
  /// its end. `bytes`: what the meter counts, for each rank of the group; empty: the call is not counted.
  uint64_t begin(const flight::CallInfo& call, const std::vector<int64_t>& bytes, bool is_message = false);
  const std::shared_ptr<CallLog>& log() const { return log_; }

  /// Collective calls that have begun: the same number on all ranks.
  int64_t num_calls() const { return num_calls_; }

  /// Waits for a message on a thread of its own; the group's end waits for that thread. A fault is in the record.
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
  LocalBackend* local_ = nullptr;
  TaskQueue messages_;  // last: ends first
};

/// A group of one: each collective is the identity.
std::unique_ptr<ProcessGroup> make_single_group();

}  // namespace tandem::comm
