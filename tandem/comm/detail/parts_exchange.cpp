#include "tandem/comm/detail/parts_exchange.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tandem/comm/detail/group_calls.h"

namespace tandem::comm::detail {

int exchange_tag(const ProcessGroup& group) {
  constexpr int kFirst = 0x7f000000, kTags = 1 << 20;
  return kFirst + static_cast<int>(group.calls().num_calls() % kTags);
}

PartsExchange::PartsExchange(std::vector<at::Tensor> parts, ProcessGroup& group)
    : group_(&group), backend_(group.handle()->getBackend(c10::DeviceType::CPU)), parts_(std::move(parts)) {}

/// Each rank begins with another peer.
void PartsExchange::begin() {
  const int rank = group_->rank(), size = group_->size(), tag = exchange_tag(*group_);
  for (int step = 1; step < size; ++step) {
    const int from = (rank + size - step) % size, to = (rank + step) % size;
    std::vector<at::Tensor> arriving = {parts_[from]}, own = {parts_[rank]};
    if (arriving[0].numel() > 0) works_.push_back(backend_->recv(arriving, from, tag));
    if (own[0].numel() > 0) works_.push_back(backend_->send(own, to, tag));
  }
}

bool PartsExchange::wait(std::chrono::milliseconds timeout) {
  for (const auto& work : works_) work->wait(timeout);
  return true;
}

}  // namespace tandem::comm::detail
