#include "tandem/parallel/ordered_data_parallel.h"

#include <ATen/ATen.h>

#include <limits>
#include <map>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/detail/broadcast_all.h"

namespace tandem::parallel {

/// The gradients of one element type: of the shard at hand, and this rank's part of the sum.
struct OrderedDataParallel::Flat {
  Flat(const std::vector<Tensor>& of, const comm::ProcessGroup& group) : parameters(of) {
    int64_t count = 0;
    for (const auto& parameter : parameters) count += parameter.numel();
    sizes = comm::split_sizes(count, group.size());
    const CategoryScope scope(Category::gradients);
    const auto options = parameters[0].options().requires_grad(false);
    whole = at::zeros({count}, options);
    sum = at::zeros({sizes[group.rank()]}, options);
  }

  /// Makes each .grad a view into `whole`, laid out as its parameter.
  void lay_gradients() {
    int64_t at = 0;
    for (const auto& parameter : parameters) {
      const auto place = whole.narrow(0, at, parameter.numel());
      parameter.mutable_grad() = parameter.is_non_overlapping_and_dense()
                                     ? place.as_strided(parameter.sizes(), parameter.strides(), place.storage_offset())
                                     : place.view(parameter.sizes());
      at += parameter.numel();
    }
  }

  /// Adds the shards' gradients of this rank's part, in rank order.
  void add(comm::ProcessGroup& group) {
    const auto own = sum.size(0);
    const auto parts = comm::all_to_all(whole, group, 0, sizes, std::vector<int64_t>(group.size(), own));
    for (int rank = 0; rank < group.size(); ++rank) sum.add_(parts.narrow(0, rank * own, own));
  }

  std::vector<Tensor> parameters;
  std::vector<int64_t> sizes;  // of each rank's part
  Tensor whole, sum;
};

OrderedDataParallel::OrderedDataParallel(const std::vector<Parameter>& parameters, const std::vector<Tensor>& buffers,
                                         comm::ProcessGroup& group)
    : group_(group), arrivals_(tensors_of(trained_of(parameters)), names_of(trained_of(parameters))) {
  check_each_once("data parallel", parameters);
  detail::broadcast_all(tensors_of(parameters), 0, group);
  detail::broadcast_all(buffers, 0, group);
  std::map<at::ScalarType, std::vector<Tensor>> by_type;
  for (const auto& parameter : arrivals_.parameters()) by_type[parameter.scalar_type()].push_back(parameter);
  for (const auto& [type, members] : by_type) flats_.emplace_back(members, group);
}

OrderedDataParallel::~OrderedDataParallel() = default;

void OrderedDataParallel::before_forward(const MicroBatch& micro) {
  const at::NoGradGuard no_grad;
  for (auto& flat : flats_) {
    flat.whole.zero_();
    flat.lay_gradients();
    if (micro.is_first()) flat.sum.zero_();
  }
  arrivals_.begin_step();
}

void OrderedDataParallel::before_backward(const Tensor& loss, const MicroBatch&, flight::Where) {
  TORCH_CHECK_VALUE(loss.requires_grad() || flats_.empty(),
                    "data parallel: the loss is no function of the parameters, wanted one");
}

void OrderedDataParallel::after_backward(const MicroBatch& micro) {
  if (flats_.empty()) return;
  const at::NoGradGuard no_grad;
  const PhaseScope phase(Phase::backward);
  const CategoryScope scope(Category::communication);
  // A rank that lacks a gradient tells the others by a NaN, which all see in the sum.
  const bool lacks_one = micro.is_last() && !arrivals_.are_complete();
  if (lacks_one) flats_[0].whole.narrow(0, 0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  clock_.count_unhidden([&] { exchange(micro.is_last()); });
  if (micro.is_last() && is_spoilt()) arrivals_.check(group_);
}

void OrderedDataParallel::exchange(bool is_last) {
  for (auto& flat : flats_) flat.add(group_);
  if (!is_last) return;
  for (auto& flat : flats_) flat.whole.copy_(comm::all_gather(flat.sum, group_, 0, flat.sizes));
}

SyncMemory OrderedDataParallel::memory() {
  const memory::ProbeScope probe;
  exchange(/*is_last=*/true);
  return {.exchange = probe.account().peak_bytes(), .owned_gradients = arrivals_.parameters()};
}

bool OrderedDataParallel::is_spoilt() const {
  return !flats_.empty() && flats_[0].whole.narrow(0, 0, 1).isnan().item<bool>();
}

}  // namespace tandem::parallel
