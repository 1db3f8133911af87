#include "tandem/parallel/data_parallel.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace tandem::parallel {
namespace {

Context context_of(int replica, int64_t first) {
  auto context = current_context();
  if (replica > 0) context.statistics = BatchStatistics::leave;
  context.first_sample += first;
  return context;
}

/// Of "cuda", the calling thread's current one.
c10::Device with_index(c10::Device device) {
  if (device.is_cpu() || device.has_index()) return device;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

void check_place(const std::string& name, const Tensor& tensor, const c10::Device& device) {
  TORCH_CHECK_VALUE(tensor.device() == device, "data parallel: ", name, " is on ", tensor.device().str(), ", wanted ",
                    device.str(), ", the first of the devices: move the module there before");
}

/// The sizes of the parts along `dim`, of the first tensor that has dims.
std::vector<int64_t> sizes_of(const std::vector<Nested>& parts, int64_t dim) {
  std::vector<int64_t> sizes;
  for (const auto& part : parts) {
    for (const auto& tensor : part.tensors()) {
      if (tensor.dim() == 0) continue;
      sizes.push_back(tensor.size(dim));
      break;
    }
  }
  return sizes;
}

}  // namespace

ReplicaScope::ReplicaScope(int replica, int64_t first) : ContextScope(context_of(replica, first)) {}

DataParallel::DataParallel(std::vector<std::shared_ptr<torch::nn::Module>> replicas, Forward forward,
                           DataParallelOptions options)
    : replicas_(std::move(replicas)), forward_(std::move(forward)), options_(std::move(options)) {
  for (auto& device : options_.devices) device = with_index(device);
  check_devices();
  const auto count = options_.devices.size();
  TORCH_CHECK_VALUE(replicas_.size() == 1 || replicas_.size() == count, "data parallel: there are ", replicas_.size(),
                    " modules for ", count, " devices, wanted 1 that all share, or one each");
  threads_ = ReplicaThreads::for_replicas(static_cast<int>(count), options_.devices[0], options_.first_rank);
}

void DataParallel::check_devices() const {
  TORCH_CHECK_VALUE(!options_.devices.empty(), "data parallel: there is no device, wanted one or more");
  for (const auto& device : options_.devices) {
    TORCH_CHECK_VALUE(device == options_.devices[0], "data parallel: a device is ", device.str(), ", wanted ",
                      options_.devices[0].str(),
                      " as the first: for several use a rank each and DistributedDataParallel");
  }
}

Nested DataParallel::forward(const Nested& batch) {
  refresh_replicas();
  const auto& devices = options_.devices;
  const auto parts = scatter(batch, devices, {.dim = options_.dim, .sizes = options_.chunk_sizes});
  const auto sizes = sizes_of(parts, options_.dim);
  std::vector<int64_t> first(sizes.size(), 0);
  for (size_t i = 1; i < sizes.size(); ++i) first[i] = first[i - 1] + sizes[i - 1];
  const auto values = parallel_apply(
      [&](int number, const Nested& part) {
        const ReplicaScope scope(number, first[static_cast<size_t>(number)]);
        return forward_(replica(number), part);
      },
      parts, weights(), *threads_);
  return gather(values, options_.output_device.value_or(devices[0]),
                {.dim = options_.dim, .scalars = options_.scalars, .sizes = sizes});
}

/// The module may have been changed since the last forward.
void DataParallel::refresh_replicas() {
  const auto& module = *replicas_[0];
  for (const auto& weight : module.named_parameters()) check_place(weight.key(), weight.value(), options_.devices[0]);
  for (const auto& buffer : module.named_buffers()) check_place(buffer.key(), buffer.value(), options_.devices[0]);
  for (size_t i = 1; i < replicas_.size(); ++i) refresh(module, *replicas_[i]);
}

torch::nn::Module& DataParallel::replica(int number) const {
  return *replicas_[replicas_.size() == 1 ? 0 : static_cast<size_t>(number)];
}

std::vector<std::vector<Tensor>> DataParallel::weights() const {
  std::vector<std::vector<Tensor>> all;
  for (const auto& module : replicas_) all.push_back(module->parameters());
  return all;
}

}  // namespace tandem::parallel
