#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/cuda/memory_snapshot.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "tandem/memory/detail/cuda_records.h"
#include "tandem/memory/detail/device_history.h"
#include "tandem/memory/device_memory.h"
#include "tandem/memory/device_meter.h"

namespace tandem::memory {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

/// The number of a GPU whose allocator is ready; nullopt for another device.
std::optional<c10::DeviceIndex> gpu_of(c10::Device device) {
  if (!device.is_cuda() || c10::cuda::device_count() == 0) return std::nullopt;
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  return device.has_index() ? device.index() : c10::cuda::current_device();
}

/// Called under the allocator's lock, which an exception must not leave. What the host has no memory to count is not
/// counted.
void note(const allocator::TraceEntry& entry) noexcept {
  try {
    const auto* address = reinterpret_cast<const void*>(entry.addr_);
    if (entry.action_ == allocator::TraceEntry::ALLOC) note_allocation(address, entry.size_, /*may_refuse=*/false);
    if (entry.action_ == allocator::TraceEntry::FREE_REQUESTED) note_release(address);
  } catch (const std::exception&) {
  }
}

}  // namespace

void detail::note_cuda_memory() {
  static std::once_flag once;
  if (c10::cuda::device_count() == 0) return;
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  // Others, which the environment may ask for, tell nobody.
  if (allocator::get()->name() != "native") return;
  std::call_once(once, [] { allocator::attachAllocatorTraceTracker(&note); });
}

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

void limit_device(std::optional<int64_t> bytes) {
  const auto gpu = gpu_of(c10::DeviceType::CUDA);
  if (!gpu) return;
  const auto all = static_cast<double>(at::cuda::getDeviceProperties(*gpu)->totalGlobalMem);
  allocator::setMemoryFraction(bytes ? std::min(1.0, static_cast<double>(*bytes) / all) : 1.0, *gpu);
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
