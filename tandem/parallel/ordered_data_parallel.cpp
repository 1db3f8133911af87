#include "tandem/parallel/ordered_data_parallel.h"

#include <ATen/ATen.h>

#include <limits>
#include <map>

#include "tandem/base/context.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/detail/broadcast_all.h"
#include "tandem/parallel/detail/ordered_sum.h"

namespace tandem::parallel {

/// The gradients of one element type: of the shard at hand, and this rank's part of the sum.
struct OrderedDataParallel::Flat {
  Flat(const std::vector<Tensor>& of, comm::ProcessGroup& group)
      : parameters(of), whole(zeros_for(of)), sum(whole, group) {}

  static Tensor zeros_for(const std::vector<Tensor>& parameters) {
    int64_t count = 0;
    for (const auto& parameter : parameters) count += parameter.numel();
    const CategoryScope scope(Category::gradients);
    return at::zeros({count}, parameters[0].options().requires_grad(false));
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

  std::vector<Tensor> parameters;
  Tensor whole;
  detail::OrderedSum sum;
};

OrderedDataParallel::OrderedDataParallel(const std::vector<Parameter>& parameters, const std::vector<Tensor>& buffers,
                                         comm::ProcessGroup& group, bool allows_unused)
    : group_(group),
      arrivals_(tensors_of(trained_of(parameters)), names_of(trained_of(parameters))),
      unused_(arrivals_.parameters(), /*find=*/allows_unused, /*is_static=*/false) {
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
  }
  micro.is_first() ? arrivals_.begin_step() : arrivals_.begin_backward();
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
  const bool lacks_one = micro.is_last() && !unused_.are_allowed() && !arrivals_.are_complete();
  if (lacks_one) flats_[0].whole.narrow(0, 0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  clock_.count_unhidden([&] { exchange(micro.is_first(), micro.is_last()); });
  if (!micro.is_last()) return;
  if (is_spoilt()) arrivals_.check(group_, detail::kAllowUnused);
  for (const auto i : unused_.nowhere()) arrivals_.parameters()[i].mutable_grad().reset();
}

void OrderedDataParallel::exchange(bool is_first, bool is_last) {
  for (auto& flat : flats_) flat.sum.add(flat.whole, is_first);
  if (!is_last) return;
  for (auto& flat : flats_) flat.sum.end(flat.whole);
  unused_.find_nowhere(arrivals_.used(), group_);
}

SyncMemory OrderedDataParallel::memory() {
  const memory::ProbeScope probe;
  exchange(/*is_first=*/true, /*is_last=*/true);
  return {.exchange = probe.account().peak_bytes(), .owned_gradients = arrivals_.parameters()};
}

bool OrderedDataParallel::is_spoilt() const {
  return !flats_.empty() && flats_[0].whole.narrow(0, 0, 1).isnan().item<bool>();
}

}  // namespace tandem::parallel
