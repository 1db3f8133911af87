#include "tandem/parallel/detail/served_flat.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/detail/held_parts.h"
#include "tandem/parallel/detail/messages.h"

namespace tandem::parallel::detail {
ServedFlat::ServedFlat(std::vector<Parameter> parameters, const Servers& servers, int64_t staleness)
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
  lay_out(staleness);
  const auto& group = servers.group();
  const ShardHolders holders = {.first = group.size() - servers.count(), .own = group.rank(), .size = group.size()};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    held_.push_back(held_parts(layout_, i, parameters_[i], shard_, holders));
  }
}

void ServedFlat::lay_out(int64_t staleness) {
  const auto apart = [&](const Tensor& numbers) {
    const CategoryScope scope(Category::parameters);
    return staleness > 0 ? numbers.clone() : numbers;
  };
  const int64_t size = layout_.shard_size();
  if (servers_.is_server()) shard_ = apart(flat_.narrow(0, servers_.own_number() * size, size));
  if (servers_.is_worker()) arriving_ = apart(flat_);
  const CategoryScope scope(Category::gradients);
  if (servers_.is_server()) sum_ = at::zeros({size}, layout_.options());
  if (!servers_.is_worker()) return;
  for (int64_t slot = 0; slot <= staleness; ++slot)
    gradients_.push_back(at::zeros({layout_.size()}, layout_.options()));
}

Tensor ServedFlat::by_shard(const Tensor& flat) const { return flat.view({servers_.count(), layout_.shard_size()}); }

void ServedFlat::for_each_message(const std::function<void(int64_t first, int64_t count)>& send) const {
  const int64_t bytes = servers_.count() * static_cast<int64_t>(flat_.element_size());
  const int64_t most = std::max<int64_t>(1, kMessageBytes / bytes);
  for (int64_t first = 0; first < layout_.shard_size(); first += most) {
    send(first, std::min(most, layout_.shard_size() - first));
  }
}

void ServedFlat::lay_gradients(size_t slot) {
  if (!servers_.is_worker()) return;
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView untracked;
  gradients_[slot].zero_();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].tensor.mutable_grad() = layout_.whole(gradients_[slot], i);
  }
}

void ServedFlat::drop_idle_gradients() {
  if (servers_.is_worker()) return;
  for (const auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void ServedFlat::take_gradients(size_t slot) {
  if (!servers_.is_worker()) return;
  for (const auto& [name, tensor, placement] : parameters_) {
    TORCH_CHECK(tensor.grad().defined() && tensor.grad().is_alias_of(gradients_[slot]),
                "parameter server: the gradient of ", name,
                " has left the memory that it was given, wanted backward without create_graph and without a "
                "change of .grad");
    tensor.mutable_grad().reset();
  }
}

void ServedFlat::push(size_t slot, const Aggregate& aggregate, double factor, flight::Where where) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView untracked;
  if (factor != 1.0 && servers_.is_worker()) gradients_[slot].mul_(factor);
  send_gradients(slot, aggregate, where);
  if (!servers_.is_server()) return;
  for (size_t i = 0; i < held_.size(); ++i) {
    const auto parts = layout_.parts(i, servers_.own_number());
    for (size_t k = 0; k < parts.size(); ++k) held_[i][k].tensor.mutable_grad() = layout_.part(sum_, i, parts[k]);
  }
}

void ServedFlat::send_gradients(size_t slot, const Aggregate& aggregate, flight::Where where) {
  for_each_message([&](int64_t first, int64_t count) {
    const CategoryScope scope(Category::communication);
    auto message = flat_.narrow(0, 0, servers_.count() * count);  // of a rank that only serves: only its size counts
    if (servers_.is_worker()) {
      message = by_shard(gradients_[slot]).narrow(1, first, count).clone(at::MemoryFormat::Contiguous).view({-1});
    }
    const auto pushed = servers_.push(message, where);
    if (servers_.is_server()) sum_.narrow(0, first, count).copy_(aggregate.of(pushed));
  });
}

int64_t ServedFlat::push_bytes(const Aggregate& aggregate) {
  const at::NoGradGuard no_grad;
  const memory::ProbeScope probe;
  send_gradients(/*slot=*/0, aggregate, {});
  return probe.account().peak_bytes();
}

int64_t ServedFlat::pull_bytes() {
  const memory::ProbeScope probe;
  pull();
  return probe.account().peak_bytes();
}

void ServedFlat::pull() {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView untracked;
  for_each_message([&](int64_t first, int64_t count) {
    const auto own = servers_.is_server() ? shard_.narrow(0, first, count) : flat_.narrow(0, 0, 0);
    const auto pulled = servers_.pull(own, servers_.count() * count);
    if (servers_.is_worker()) by_shard(arriving_).narrow(1, first, count).copy_(pulled.view({servers_.count(), count}));
  });
}

void ServedFlat::install() {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView untracked;
  if (arriving_.defined() && !arriving_.is_same(flat_)) flat_.copy_(arriving_);
}

}  // namespace tandem::parallel::detail
