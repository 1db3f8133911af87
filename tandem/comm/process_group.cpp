#include "tandem/comm/process_group.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/connect.h"

namespace tandem::comm {

ProcessGroup::ProcessGroup(Connect connect, std::string name, int rank, int size, std::shared_ptr<WireMeter> meter)
    : connect_(std::move(connect)), name_(std::move(name)), rank_(rank), size_(size), meter_(std::move(meter)) {
  TORCH_CHECK_VALUE(size >= 1, "process group '", name_, "': size is ", size, ", wanted 1 or more");
  TORCH_CHECK_INDEX(rank >= 0 && rank < size, "process group '", name_, "': rank is ", rank, ", wanted 0..", size - 1);
  handle_ = connect_(name_, rank_, size_);
}

ProcessGroup::~ProcessGroup() = default;

c10::intrusive_ptr<c10d::ProcessGroup> ProcessGroup::handle() const { return handle_; }

std::unique_ptr<ProcessGroup> ProcessGroup::split(int colour) {
  const auto colours = all_gather(at::full({1}, colour, at::kInt), *this);
  const int* values = colours.const_data_ptr<int>();
  int rank = 0, size = 0;
  for (int other = 0; other < size_; ++other) {
    if (values[other] != colour) continue;
    if (other < rank_) ++rank;
    ++size;
  }
  const auto name = name_ + "/" + std::to_string(num_splits_++) + "." + std::to_string(colour);
  return std::make_unique<ProcessGroup>(connect_, name, rank, size, meter_);
}

void ProcessGroup::wait(const c10::intrusive_ptr<c10d::Work>& work, const char* operation) {
  ++num_calls_;
  try {
    work->wait();
  } catch (const std::exception& error) {
    fail(operation, error);
  }
}

void ProcessGroup::fail(const char* operation, const std::exception& error) const {
  auto text = message_of(error);
  // Gloo begins with the place in its own source.
  if (text.starts_with("[") && text.find("] ") != std::string::npos) text.erase(0, text.find("] ") + 2);
  TORCH_CHECK_WITH(DistBackendError, false, operation, " of group '", name_, "', after ", num_calls_,
                   " calls, failed on rank ", rank_, " of ", size_, ": ", text,
                   ": another rank has ended, is stuck or does not answer");
}

std::unique_ptr<ProcessGroup> make_single_group() {
  auto world = std::make_shared<LocalWorld>(std::chrono::minutes(1));
  return std::make_unique<ProcessGroup>(
      [world](const std::string& name, int rank, int size) { return world->connect(name, rank, size); }, "world", 0, 1,
      std::make_shared<WireMeter>());
}

}  // namespace tandem::comm
