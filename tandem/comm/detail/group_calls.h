#pragma once
#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/comm/detail/queue_stream.h"
#include "tandem/comm/wire_meter.h"
#include "tandem/flight/recorder.h"

namespace c10d {
class Backend;
class ProcessGroup;
}  // namespace c10d

namespace tandem::comm {
class LocalBackend;
class OwnBackend;
class SegmentBackend;
}  // namespace tandem::comm

namespace tandem::comm::detail {

/// Counters and records of one rank's communication, through all of its groups.
struct Instruments {
  Instruments(int rank, int size) : recorder(rank, size) {}

  WireMeter meter;
  flight::FlightRecorder recorder;
  bool check = false;  // compare every collective call with the other ranks' before it is made; see call_check.h
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

/// What the operators need of a group: the engine below it, and the count of its calls.
class GroupCalls {
 public:
  /// `members`: the world ranks; this one is the `rank`-th.
  GroupCalls(c10::intrusive_ptr<c10d::ProcessGroup> handle, const std::string& name, const std::vector<int>& members,
             int rank, std::shared_ptr<Instruments> instruments);

  const std::shared_ptr<Instruments>& instruments() const { return instruments_; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& handle() const { return handle_; }

  /// The backend for tensors on a device: for CPU tensors Gloo or an OwnBackend; for CUDA tensors NCCL, or an
  /// OwnBackend of thread-ranks, or else a StagedBackend, which has only broadcast and allreduce. Throws c10::Error if
  /// the group has none.
  c10d::Backend& backend(c10::DeviceType device = c10::DeviceType::CPU) const;
  LocalBackend* local() const { return local_; }          // null: the ranks are processes
  SegmentBackend* segments() const { return segments_; }  // null: they share no memory, or are threads
  OwnBackend* own() const { return own_; }                // null: the ranks use Gloo

  /// Of the work that ProcessGroup::queue() runs.
  QueueStream& queue_stream() { return queue_stream_; }

  /// OwnBackend::run_later() of all backends that have it.
  void run_later(bool later) const;

  /// Begins a call. It is numbered, counted, recorded, and compared with the other ranks' where Instruments::check is
  /// on; its end must be reported to log(). Returns the number of the record. `bytes`: payload for each rank of the
  /// group, for the meter; if empty, the call is not counted.
  uint64_t begin(const flight::CallInfo& call, const std::vector<int64_t>& bytes, bool is_message = false);
  const std::shared_ptr<CallLog>& log() const { return log_; }

  /// Number of collective calls begun so far; the same on all ranks.
  int64_t num_calls() const { return num_calls_; }

 private:
  std::string name_;
  std::vector<int> members_;
  std::shared_ptr<Instruments> instruments_;
  std::shared_ptr<CallLog> log_;
  c10::intrusive_ptr<c10d::ProcessGroup> handle_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  OwnBackend *own_, *of_devices_;
  LocalBackend* local_;
  SegmentBackend* segments_;
  QueueStream queue_stream_;
  int64_t num_calls_ = 0;
  std::map<std::pair<std::string, int>, int64_t> num_messages_;  // operation, peer
};

}  // namespace tandem::comm::detail
