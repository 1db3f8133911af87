#include "tandem/parallel/replicas/chain_replicas.h"

#include <c10/core/Device.h>

#include <set>

#include "tandem/comm/split.h"
#include "tandem/parallel/data_parallel.h"

namespace tandem::parallel {
namespace {

/// Each once.
std::vector<Tensor> weights_of(const memory::Chain& blocks) {
  std::vector<Tensor> all;
  std::set<const void*> known;
  for (const auto& block : blocks.blocks) {
    for (const auto& weight : memory::parameters_of(block)) {
      if (known.insert(weight.unsafeGetTensorImpl()).second) all.push_back(weight);
    }
  }
  return all;
}

c10::Device device_of(const memory::Chain* chain) {
  const auto weights = chain != nullptr ? weights_of(*chain) : std::vector<Tensor>();
  return weights.empty() ? c10::DeviceType::CPU : weights.front().device();
}

Nested::List list_of(const memory::Flow& flow) { return {flow.begin(), flow.end()}; }

}  // namespace

ChainReplicas::ChainReplicas(memory::Chain* chain, int replicas)
    : chain_(chain), replicas_(replicas), threads_(ReplicaThreads::for_replicas(replicas, device_of(chain))) {
  if (chain_ == nullptr) return;
  for (auto& block : chain_->blocks) block.runner = this;
}

ChainReplicas::~ChainReplicas() {
  if (chain_ == nullptr) return;
  for (auto& block : chain_->blocks) block.runner = nullptr;
}

memory::Flow ChainReplicas::run(const memory::Chain& blocks, const memory::Flow& input) {
  const auto device = input.at(0).device();
  const std::vector<c10::Device> devices(static_cast<size_t>(replicas_), device);
  const auto parts = scatter(list_of(input), devices, {.sizes = comm::split_sizes(input[0].size(0), replicas_)});
  std::vector<int64_t> first = {0};
  for (const auto& part : parts) first.push_back(first.back() + part[0].tensor().size(0));
  const auto values = parallel_apply(
      [&](int replica, const Nested& part) -> Nested {
        const ReplicaScope scope(replica, first[static_cast<size_t>(replica)]);
        return list_of(memory::run(blocks, part.tensors()));
      },
      parts, {weights_of(blocks)}, *threads_);
  return gather(values, device).tensors();
}

}  // namespace tandem::parallel
