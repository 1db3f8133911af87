#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/cuda/memory_snapshot.h>

#include "tandem/memory/detail/device_history.h"
#include "tandem/memory/device_memory.h"

namespace tandem::memory {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

/// The number of a GPU whose allocator is ready; nullopt for another device.
std::optional<c10::DeviceIndex> gpu_of(c10::Device device) {
  if (!device.is_cuda() || c10::cuda::device_count() == 0) return std::nullopt;
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  return device.has_index() ? device.index() : c10::cuda::current_device();
}

}  // namespace

std::optional<DeviceBytes> device_bytes(c10::Device device) {
  const auto gpu = gpu_of(device);
  if (!gpu) return std::nullopt;
  const auto kind = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto requested = allocator::getDeviceStats(*gpu).requested_bytes[kind];
  return DeviceBytes{requested.current, requested.peak};
}

void reset_device_peak(c10::Device device) {
  if (const auto gpu = gpu_of(device)) allocator::resetPeakStats(*gpu);
}

void record_device_history(c10::Device device) {
  if (!gpu_of(device)) detail::refuse_history(device);
  // Without stacks, which would be those of this program: to name them takes longer than the step.
  torch::cuda::_record_memory_history(/*enabled=*/std::optional<std::string>("all"), /*context=*/std::nullopt);
}

std::string device_snapshot() {
  return c10::cuda::device_count() == 0 ? std::string() : torch::cuda::_memory_snapshot_pickled();
}

}  // namespace tandem::memory
