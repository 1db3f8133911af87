#include "tandem/comm/detail/nccl.h"

#include <c10/cuda/CUDAFunctions.h>

#include <atomic>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace tandem::comm::detail {
namespace {

std::atomic<bool> has_own_gpu{false};  // of all threads of the process

}  // namespace

void choose_gpu(int local_rank, int local_size) {
  const int count = c10::cuda::device_count();
  has_own_gpu = local_size <= count;
  if (count > 0) c10::cuda::set_device(static_cast<c10::DeviceIndex>(local_rank % count));
}

void add_nccl(c10d::ProcessGroup& group, c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout) {
  if (!has_own_gpu) return;
  using Nccl = c10d::ProcessGroupNCCL;
  const auto options = Nccl::Options::create();
  options->timeout = timeout;
  auto own = c10::make_intrusive<c10d::PrefixStore>("nccl", std::move(store));
  auto backend = c10::make_intrusive<Nccl>(std::move(own), group.getRank(), group.getSize(), options);
  group.setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, std::move(backend));
}

}  // namespace tandem::comm::detail
