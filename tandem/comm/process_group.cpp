#include "tandem/comm/process_group.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <numeric>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/connect.h"
#include "tandem/comm/detail/group_calls.h"
#include "tandem/comm/local/local_backend.h"
#include "tandem/comm/local/task_queue.h"

namespace tandem::comm {

ProcessGroup::ProcessGroup(Connect connect, std::string name, std::vector<int> members, int rank,
                           std::shared_ptr<detail::Instruments> instruments)
    : connect_(std::move(connect)), name_(std::move(name)), members_(std::move(members)), rank_(rank) {
  TORCH_CHECK_VALUE(size() >= 1, "process group '", name_, "': size is ", size(), ", wanted 1 or more");
  TORCH_CHECK_INDEX(rank >= 0 && rank < size(), "process group '", name_, "': rank is ", rank, ", wanted 0..",
                    size() - 1);
  if (!instruments) instruments = std::make_shared<detail::Instruments>(rank, size());
  calls_ = std::make_unique<detail::GroupCalls>(connect_(name_, rank_, size()), name_, members_, rank_,
                                                std::move(instruments));
  queue_ = std::make_unique<TaskQueue>();
}

ProcessGroup::~ProcessGroup() = default;

c10::intrusive_ptr<c10d::ProcessGroup> ProcessGroup::handle() const { return calls_->handle(); }

WireMeter& ProcessGroup::meter() { return calls_->instruments()->meter; }

flight::FlightRecorder& ProcessGroup::recorder() { return calls_->instruments()->recorder; }

std::chrono::milliseconds ProcessGroup::timeout() const {
  return calls_->own() != nullptr ? calls_->own()->timeout() : calls_->backend().getBackendOptions()->timeout;
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
  auto group = std::make_unique<ProcessGroup>(connect_, name, std::move(members), rank, calls_->instruments());
  // Without this barrier, the other ranks would get no error from Gloo if a rank ended before its first call.
  flight::CallInfo call;
  call.operation = "split";
  call.where = where;
  auto& calls = group->calls();
  try {
    if (group->size() > 1) calls.backend().barrier()->wait();
  } catch (const std::exception& error) {
    calls.log()->fail(group->recorder().begin(group->name_, group->members_, 0, call), call, error);
  }
  return group;
}

ProcessGroup& ProcessGroup::beside(flight::Where where) {
  if (!beside_) beside_ = split(0, where);
  return *beside_;
}

void ProcessGroup::queue(std::function<void()> work) {
  queue_->push([context = current_context(), work = calls_->queue_stream().beside(std::move(work))] {
    const ContextScope scope(context);
    work();
  });
}

Transport ProcessGroup::transport() const {
  return calls_->own() != nullptr ? calls_->own()->transport() : Transport::sockets;
}

const char* name_of(Transport transport) {
  constexpr const char* kNames[] = {"memory", "segments", "sockets"};
  return kNames[static_cast<int>(transport)];
}

std::unique_ptr<ProcessGroup> make_single_group() {
  auto world = std::make_shared<LocalWorld>(std::chrono::minutes(1));
  return std::make_unique<ProcessGroup>(
      [world](const std::string& name, int rank, int size) { return world->connect(name, rank, size); }, "world",
      std::vector<int>{0}, 0);
}

std::unique_ptr<ProcessGroup> make_rehearsal_group(int rank, int size, Transport transport) {
  std::vector<int> members(size);
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<ProcessGroup>(
      [transport](const std::string&, int own, int of) { return connect_alone(own, of, transport); }, "rehearsal",
      std::move(members), rank);
}

}  // namespace tandem::comm
