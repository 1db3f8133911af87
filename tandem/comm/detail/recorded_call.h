#pragma once
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "tandem/comm/detail/group_calls.h"
#include "tandem/comm/process_group.h"

namespace tandem::comm::detail {

/// One call of a rank, from its beginning to its end: numbered, counted and recorded by the group. A copy may outlive
/// the group.
class RecordedCall {
 public:
  RecordedCall(ProcessGroup& group, flight::CallInfo call, const std::vector<int64_t>& bytes, bool is_message = false)
      : number_(group.calls().begin(call, bytes, is_message)), call_(std::move(call)), log_(group.calls().log()) {}

  const flight::CallInfo& info() const { return call_; }

  /// Runs a part of the call. An exception is written into the flight record and thrown as c10::DistBackendError that
  /// names operation, place and rank.
  template <class Part>
  auto run(const Part& part) const {
    try {
      return part();
    } catch (const std::exception& error) {
      log_->fail(number_, call_, error);
    }
  }

  void end() const { log_->end(number_); }

 private:
  uint64_t number_;
  flight::CallInfo call_;
  std::shared_ptr<CallLog> log_;
};

}  // namespace tandem::comm::detail
