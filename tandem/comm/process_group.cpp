#include "tandem/comm/process_group.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <numeric>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/connect.h"
#include "tandem/comm/detail/call_check.h"
#include "tandem/comm/local/local_backend.h"

namespace tandem::comm {
namespace {

/// Gloo begins its messages with the location in its own source.
std::string without_source(std::string text) {
  if (text.starts_with("[") && text.find("] ") != std::string::npos) text.erase(0, text.find("] ") + 2);
  return text;
}

}  // namespace

ProcessGroup::ProcessGroup(Connect connect, std::string name, std::vector<int> members, int rank,
                           std::shared_ptr<Instruments> instruments)
    : connect_(std::move(connect)),
      name_(std::move(name)),
      members_(std::move(members)),
      rank_(rank),
      instruments_(std::move(instruments)) {
  TORCH_CHECK_VALUE(size() >= 1, "process group '", name_, "': size is ", size(), ", wanted 1 or more");
  TORCH_CHECK_INDEX(rank >= 0 && rank < size(), "process group '", name_, "': rank is ", rank, ", wanted 0..",
                    size() - 1);
  log_ = std::make_shared<CallLog>(name_, members_[rank_], instruments_);
  handle_ = connect_(name_, rank_, size());
  backend_ = handle_->getBackend(c10::DeviceType::CPU);
  own_ = dynamic_cast<OwnBackend*>(backend_.get());
  local_ = dynamic_cast<LocalBackend*>(own_);
}

ProcessGroup::~ProcessGroup() = default;

c10::intrusive_ptr<c10d::ProcessGroup> ProcessGroup::handle() const { return handle_; }

c10d::Backend& ProcessGroup::backend(c10::DeviceType device) const {
  return device == c10::DeviceType::CPU ? *backend_ : *handle_->getBackend(device);
}

std::chrono::milliseconds ProcessGroup::timeout() const {
  return own_ != nullptr ? own_->timeout() : backend_->getBackendOptions()->timeout;
}

std::unique_ptr<ProcessGroup> ProcessGroup::split(int colour, flight::Where where) {
  const auto colours = all_gather(at::full({1}, colour, at::kInt), *this, 0, std::vector<int64_t>(size(), 1), where);
  const int* values = colours.const_data_ptr<int>();
  std::vector<int> ranks;
  for (int other = 0; other < size(); ++other) {
    if (values[other] == colour) ranks.push_back(other);
  }
  return split(colour, ranks, where);
}

std::unique_ptr<ProcessGroup> ProcessGroup::split(int colour, const std::vector<int>& ranks, flight::Where where) {
  std::vector<int> members;
  int rank = 0;
  for (const int other : ranks) {
    if (other < rank_) ++rank;
    members.push_back(members_.at(other));
  }
  const auto name = name_ + "/" + std::to_string(num_splits_++) + "." + std::to_string(colour);
  if (colour < 0) return nullptr;
  auto group = std::make_unique<ProcessGroup>(connect_, name, std::move(members), rank, instruments_);
  // Without this barrier, the other ranks would get no error from Gloo if a rank ended before its first call.
  flight::CallInfo call;
  call.operation = "split";
  call.where = where;
  try {
    if (group->size() > 1) group->backend_->barrier()->wait();
  } catch (const std::exception& error) {
    group->log_->fail(group->recorder().begin(group->name_, group->members_, 0, call), call, error);
  }
  return group;
}

uint64_t ProcessGroup::begin(const flight::CallInfo& call, const std::vector<int64_t>& bytes, bool is_message) {
  const int64_t sequence = is_message ? ++num_messages_[{call.operation, call.peer}] : ++num_calls_;
  if (!bytes.empty()) meter().add(call.operation, bytes, members_);
  const auto number = recorder().begin(name_, members_, sequence, call);
  if (!instruments_->check || is_message) return number;
  try {
    detail::check_call(*backend_, call, sequence);
  } catch (const std::exception& error) {
    log_->fail(number, call, error);
  }
  return number;
}

void CallLog::fail(uint64_t number, const flight::CallInfo& call, const std::exception& error) {
  instruments_->recorder.end(number, flight::FlightRecorder::State::failed);
  const auto text = call.describe() + ", group '" + group_ + "', failed on rank " + std::to_string(world_rank_) + ": " +
                    without_source(message_of(error));
  const auto folder = instruments_->recorder.write(text);
  TORCH_CHECK_WITH(DistBackendError, false, text,
                   folder.empty() ? "" : "; 'tandem doctor " + folder.string() + "' tells more");
}

ProcessGroup& ProcessGroup::beside(flight::Where where) {
  if (!beside_) beside_ = split(0, where);
  return *beside_;
}

void ProcessGroup::queue(std::function<void()> work) {
  queue_.push([context = current_context(), work = std::move(work)] {
    const ContextScope scope(context);
    work();
  });
}

Transport ProcessGroup::transport() const { return own_ ? own_->transport() : Transport::sockets; }

const char* name_of(Transport transport) {
  constexpr const char* kNames[] = {"memory", "segments", "sockets"};
  return kNames[static_cast<int>(transport)];
}

void ProcessGroup::finish_later(Handle handle) {
  queue([handle = std::make_shared<Handle>(std::move(handle))] {
    try {
      handle->wait();
    } catch (const std::exception&) {
      // fail() has written the record. The rank that waits for this message fails too, and reports the error.
    }
  });
}

std::unique_ptr<ProcessGroup> make_single_group() {
  auto world = std::make_shared<LocalWorld>(std::chrono::minutes(1));
  return std::make_unique<ProcessGroup>(
      [world](const std::string& name, int rank, int size) { return world->connect(name, rank, size); }, "world",
      std::vector<int>{0}, 0, std::make_shared<Instruments>(0, 1));
}

std::unique_ptr<ProcessGroup> make_rehearsal_group(int rank, int size, Transport transport) {
  std::vector<int> members(size);
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<ProcessGroup>(
      [transport](const std::string&, int own, int of) { return connect_alone(own, of, transport); }, "rehearsal",
      std::move(members), rank, std::make_shared<Instruments>(rank, size));
}

}  // namespace tandem::comm
