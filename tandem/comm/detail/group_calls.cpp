#include "tandem/comm/detail/group_calls.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tandem/base/error.h"
#include "tandem/comm/detail/call_check.h"
#include "tandem/comm/local/local_backend.h"
#include "tandem/comm/segments/segment_backend.h"

namespace tandem::comm::detail {
namespace {

/// Gloo begins its messages with the location in its own source.
std::string without_source(std::string text) {
  if (text.starts_with("[") && text.find("] ") != std::string::npos) text.erase(0, text.find("] ") + 2);
  return text;
}

}  // namespace

void CallLog::fail(uint64_t number, const flight::CallInfo& call, const std::exception& error) {
  instruments_->recorder.end(number, flight::FlightRecorder::State::failed);
  const auto text = call.describe() + ", group '" + group_ + "', failed on rank " + std::to_string(world_rank_) + ": " +
                    without_source(message_of(error));
  const auto folder = instruments_->recorder.write(text);
  TORCH_CHECK_WITH(DistBackendError, false, text,
                   folder.empty() ? "" : "; 'tandem doctor " + folder.string() + "' tells more");
}

GroupCalls::GroupCalls(c10::intrusive_ptr<c10d::ProcessGroup> handle, const std::string& name,
                       const std::vector<int>& members, int rank, std::shared_ptr<Instruments> instruments)
    : name_(name),
      members_(members),
      instruments_(std::move(instruments)),
      log_(std::make_shared<CallLog>(name, members[rank], instruments_)),
      handle_(std::move(handle)),
      backend_(handle_->getBackend(c10::DeviceType::CPU)),
      own_(dynamic_cast<OwnBackend*>(backend_.get())),
      of_devices_(dynamic_cast<OwnBackend*>(handle_->getBackend(c10::DeviceType::CUDA).get())),
      local_(dynamic_cast<LocalBackend*>(own_)),
      segments_(dynamic_cast<SegmentBackend*>(own_)) {}

c10d::Backend& GroupCalls::backend(c10::DeviceType device) const {
  return device == c10::DeviceType::CPU ? *backend_ : *handle_->getBackend(device);
}

void GroupCalls::run_later(bool later) const {
  for (auto* backend : {own_, of_devices_}) {
    if (backend != nullptr) backend->run_later(later);
  }
}

uint64_t GroupCalls::begin(const flight::CallInfo& call, const std::vector<int64_t>& bytes, bool is_message) {
  const int64_t sequence = is_message ? ++num_messages_[{call.operation, call.peer}] : ++num_calls_;
  if (!bytes.empty()) instruments_->meter.add(call.operation, bytes, members_);
  const auto number = instruments_->recorder.begin(name_, members_, sequence, call);
  if (!instruments_->check || is_message) return number;
  try {
    check_call(*backend_, call, sequence);
  } catch (const std::exception& error) {
    log_->fail(number, call, error);
  }
  return number;
}

}  // namespace tandem::comm::detail
