#include "tandem/parallel/detail/served_flat.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/detail/held_parts.h"

namespace tandem::parallel::detail {
namespace {

constexpr int64_t kMessageBytes = 1 << 20;

}  // namespace

ServedFlat::ServedFlat(std::vector<Parameter> parameters, const Servers& servers, comm::ProcessGroup& world)
    : parameters_(std::move(parameters)), servers_(servers), layout_(tensors_of(parameters_), servers.count()) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView untracked;  // the parameters are no views to autograd
  {
    const CategoryScope scope(Category::parameters);
    flat_ = at::zeros({layout_.size()}, layout_.options());
  }
  for (size_t i = 0; i < parameters_.size(); ++i) layout_.whole(flat_, i).copy_(parameters_[i].tensor);
  comm::broadcast_(flat_, 0, servers.group());
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].tensor.set_data(layout_.whole(flat_, i));
  const CategoryScope scope(Category::gradients);
  if (servers.is_worker()) gradients_ = at::zeros({layout_.size()}, layout_.options());
  if (servers.is_server()) sum_ = at::zeros({layout_.shard_size()}, layout_.options());
  const ShardHolder holder{.shard = servers.is_server() ? servers.own_number() : -1, .world = world.size()};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    held_.push_back(held_parts(layout_, i, parameters_[i], servers.is_server() ? shard_of(flat_) : Tensor(), holder));
  }
}

Tensor ServedFlat::shard_of(const Tensor& flat) const {
  return flat.narrow(0, servers_.own_number() * layout_.shard_size(), layout_.shard_size());
}

Tensor ServedFlat::by_shard(const Tensor& flat) const { return flat.view({servers_.count(), layout_.shard_size()}); }

void ServedFlat::for_each_message(const std::function<void(int64_t first, int64_t count)>& send) const {
  const int64_t bytes = servers_.count() * static_cast<int64_t>(flat_.element_size());
  const int64_t most = std::max<int64_t>(1, kMessageBytes / bytes);
  for (int64_t first = 0; first < layout_.shard_size(); first += most) {
    send(first, std::min(most, layout_.shard_size() - first));
  }
}

void ServedFlat::lay_gradients() {
  if (!servers_.is_worker()) return;
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView untracked;
  gradients_.zero_();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].tensor.mutable_grad() = layout_.whole(gradients_, i);
  }
}

void ServedFlat::drop_idle_gradients() {
  if (servers_.is_worker()) return;
  for (const auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void ServedFlat::take_gradients() {
  for (const auto& [name, tensor, placement] : parameters_) {
    TORCH_CHECK(tensor.grad().defined() && tensor.grad().is_alias_of(gradients_), "parameter server: the gradient of ",
                name,
                " has left the memory that it was given, wanted backward without create_graph and without a "
                "change of .grad");
    tensor.mutable_grad().reset();
  }
}

void ServedFlat::push(const Aggregate& aggregate, double factor, flight::Where where) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView untracked;
  if (servers_.is_worker()) take_gradients();
  if (factor != 1.0 && servers_.is_worker()) gradients_.mul_(factor);
  send_gradients(aggregate, where);
  if (!servers_.is_server()) return;
  for (size_t i = 0; i < held_.size(); ++i) {
    const auto parts = layout_.parts(i, servers_.own_number());
    for (size_t k = 0; k < parts.size(); ++k) held_[i][k].tensor.mutable_grad() = layout_.part(sum_, i, parts[k]);
  }
}

void ServedFlat::send_gradients(const Aggregate& aggregate, flight::Where where) {
  for_each_message([&](int64_t first, int64_t count) {
    const CategoryScope scope(Category::communication);
    auto message = flat_.narrow(0, 0, servers_.count() * count);  // of a rank that only serves: only its size counts
    if (servers_.is_worker()) {
      message = by_shard(gradients_).narrow(1, first, count).clone(at::MemoryFormat::Contiguous).view({-1});
    }
    const auto pushed = servers_.push(message, where);
    if (servers_.is_server()) sum_.narrow(0, first, count).copy_(aggregate.of(pushed));
  });
}

int64_t ServedFlat::exchange_bytes(const Aggregate& aggregate) {
  const at::NoGradGuard no_grad;
  const memory::ProbeScope probe;
  send_gradients(aggregate, {});
  return probe.account().peak_bytes();
}

void ServedFlat::pull() {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView untracked;
  for_each_message([&](int64_t first, int64_t count) {
    const auto own = servers_.is_server() ? shard_of(flat_).narrow(0, first, count) : flat_.narrow(0, 0, 0);
    const auto pulled = servers_.pull(own, servers_.count() * count);
    if (servers_.is_worker()) by_shard(flat_).narrow(1, first, count).copy_(pulled.view({servers_.count(), count}));
  });
}

}  // namespace tandem::parallel::detail
