#include "tandem/comm/detail/sum_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tandem/comm/detail/parts_exchange.h"
#include "tandem/comm/local/local_reduce.h"

namespace tandem::comm::detail {
namespace {

constexpr int64_t kSlots = 2, kChunkBytes = 1 << 20;

}  // namespace

SumExchange::SumExchange(at::Tensor rows, const std::vector<int64_t>& sizes, ProcessGroup& group)
    : group_(&group),
      backend_(group.handle()->getBackend(c10::DeviceType::CPU)),
      rank_(group.rank()),
      size_(group.size()),
      chunk_size_(std::max<int64_t>(1, kChunkBytes / static_cast<int64_t>(rows.element_size()))) {
  int64_t at = 0;
  for (const auto size : sizes) {
    parts_.push_back(rows.narrow(0, at, size).view({-1}));
    at += size;
  }
  auto shape = rows.sizes().vec();
  shape[0] = sizes[rank_];
  result_ = at::empty(shape, rows.options());
  own_ = parts_[rank_];
}

int64_t SumExchange::chunks_of(const at::Tensor& part) const { return (part.numel() + chunk_size_ - 1) / chunk_size_; }

at::Tensor SumExchange::cut(const at::Tensor& part, int64_t chunk) const {
  const int64_t begin = chunk * chunk_size_;
  return part.narrow(0, begin, std::min(chunk_size_, part.numel() - begin));
}

/// The first chunks are sent first, and each rank begins with another peer, so that no rank waits for data that is sent
/// last.
void SumExchange::begin() {
  tag_ = exchange_tag(*group_);
  slots_.resize(std::min(kSlots, chunks_of(own_)));
  for (size_t chunk = 0; chunk < slots_.size(); ++chunk) receive(static_cast<int64_t>(chunk));
  int64_t most = 0;
  for (const auto& part : parts_) most = std::max(most, chunks_of(part));
  for (int64_t chunk = 0; chunk < most; ++chunk) {
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      if (chunk < chunks_of(parts_[peer])) send(peer, chunk);
    }
  }
}

void SumExchange::send(int peer, int64_t chunk) {
  std::vector<at::Tensor> piece = {cut(parts_[peer], chunk)};
  sends_.push_back(backend_->send(piece, peer, tag_));
}

void SumExchange::receive(int64_t chunk) {
  auto& slot = slots_[chunk % kSlots];
  slot.chunks.resize(size_);
  slot.works.clear();
  const int64_t length = cut(own_, chunk).numel();
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank_ + size_ - step) % size_;
    auto& buffer = slot.chunks[peer];
    if (!buffer.defined()) buffer = at::empty({length}, own_.options());
    std::vector<at::Tensor> piece = {buffer.narrow(0, 0, length)};
    slot.works.push_back(backend_->recv(piece, peer, tag_));
  }
}

void SumExchange::add(int64_t chunk) {
  const auto own = cut(own_, chunk);
  std::vector<const void*> inputs;
  for (const auto& buffer : slots_[chunk % kSlots].chunks) {
    inputs.push_back(buffer.defined() ? buffer.const_data_ptr() : own.const_data_ptr());
  }
  void* output = cut(result_.view({-1}), chunk).mutable_data_ptr();
  reduce_slice(own.scalar_type(), c10d::ReduceOp::SUM, inputs, {&output, 1}, 0, own.numel());
}

bool SumExchange::wait(std::chrono::milliseconds timeout) {
  const int64_t count = chunks_of(own_);
  for (int64_t chunk = 0; chunk < count; ++chunk) {
    for (const auto& work : slots_[chunk % kSlots].works) work->wait(timeout);
    add(chunk);
    if (chunk + kSlots < count) receive(chunk + kSlots);
  }
  for (const auto& work : sends_) work->wait(timeout);
  return true;
}

}  // namespace tandem::comm::detail
