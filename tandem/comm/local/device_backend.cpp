#include "tandem/comm/local/device_backend.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tandem/comm/split.h"

namespace tandem::comm {
namespace {

using Tensors = std::vector<at::Tensor>;
using Reduction = OwnBackend::Reduction;

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

/// The first tensor's device; nullopt: there is none.
std::optional<c10::Device> device_of(const Tensors& tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.defined()) return tensor.device();
  }
  return std::nullopt;
}

std::shared_ptr<c10::Event> event_of(c10::Device device) { return std::make_shared<c10::Event>(device.type()); }

void add(at::Tensor& sum, const at::Tensor& part, Reduction op) {
  if (op == c10d::ReduceOp::MAX) {
    at::maximum_out(sum, sum, part);
  } else if (op == c10d::ReduceOp::MIN) {
    at::minimum_out(sum, sum, part);
  } else {
    sum.add_(part);
  }
}

/// The reduction of the ranks' parts in rank order, where `on` is: in the first part's memory if that is free and its
/// type is wide enough, else in a new tensor. Of ranks elsewhere one part at a time is copied. Imagined ranks bring the
/// same tensor.
at::Tensor reduced(const Tensors& parts, Reduction op, const at::Tensor& on, bool first_is_free) {
  const auto here = [&](const at::Tensor& part) { return part.to(on.device(), /*non_blocking=*/true); };
  auto sum = here(parts[0]).to(at::toOpMathType(on.scalar_type()), /*non_blocking=*/true, /*copy=*/!first_is_free);
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    if (!parts[rank].is_alias_of(parts[0])) add(sum, here(parts[rank]), op);
  }
  if (op == c10d::ReduceOp::AVG) sum.div_(static_cast<int64_t>(parts.size()));
  return sum;
}

/// An imagined rank brings this rank's own block, which may have another size: it is repeated. If it is empty, all bits
/// are set, as in copy_block() of memory: integers of -1.
void copy_block(const at::Tensor& source, const at::Tensor& target) {
  if (source.defined() && source.const_data_ptr() == target.const_data_ptr()) return;
  const auto from = source.defined() ? source.view({-1}) : at::Tensor(), to = target.view({-1});
  const int64_t count = from.defined() ? from.numel() : 0, wanted = to.numel();
  if (count == 0) {
    to.fill_(-1);
    return;
  }
  for (int64_t begin = 0; begin < wanted; begin += count) {
    const auto length = std::min(count, wanted - begin);
    to.narrow(0, begin, length).copy_(from.narrow(0, 0, length), /*non_blocking=*/true);
  }
}

std::vector<int64_t> bytes_of(const Tensors& tensors) {
  std::vector<int64_t> bytes;
  for (const auto& tensor : tensors) bytes.push_back(tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0);
  return bytes;
}

}  // namespace

/// What a rank shows the others while they meet.
struct DeviceBackend::Visit {
  const Tensors* given = nullptr;      // a tensor for each rank
  const at::Tensor* tensor = nullptr;  // one for all
  bool is_written = false;             // whether the others write to what it shows
  std::optional<c10::Device> device;   // of this rank; nullopt: the rank only meets
  std::shared_ptr<c10::Event> ready, done;
};

DeviceBackend::DeviceBackend(std::shared_ptr<LocalHub> hub, const LocalBackend& host)
    : OwnBackend(host.getRank(), host.getSize(), host.queue()), hub_(std::move(hub)) {}

/// Runs `body`, which sees what all ranks show, between the meetings. If it throws, this rank stays until the other
/// ranks have done their part.
template <class Body>
void DeviceBackend::meet_and(const Call& call, LocalCall own, Visit visit, const Body& body) {
  auto& exchange = hub_->exchange;
  if (visit.device) {
    visit.ready = event_of(*visit.device);
    visit.done = event_of(*visit.device);
    visit.ready->record(current_stream(*visit.device));
  }
  describe(call, own);
  own.terms.signature = ~own.terms.signature;  // a tensor on the CPU does not match
  own.input = &visit;
  exchange.meet(getRank(), own);
  std::vector<Visit> all;
  try {
    for (int rank = 0; rank < getSize(); ++rank) all.push_back(*static_cast<const Visit*>(exchange.call(rank).input));
    for (const auto& its : all) {
      if (!visit.device || !its.device || its.ready == visit.ready) continue;
      its.ready->block(current_stream(*visit.device));
      // A copy between devices is the work of the giver's.
      if (*its.device != *visit.device) its.ready->block(current_stream(*its.device));
    }
    {
      const at::AutoDispatchBelowADInplaceOrView below;  // no call of a backend is part of a graph
      body(all);
    }
    if (visit.device) visit.done->record(current_stream(*visit.device));
  } catch (...) {
    // The others wait for what this rank has begun.
    try {
      if (visit.device) visit.done->record(current_stream(*visit.device));
    } catch (const std::exception&) {
    }
    exchange.part(getRank());
    throw;
  }
  exchange.part(getRank());
  for (const auto& its : all) {
    if (visit.device && its.done && its.done != visit.done) its.done->block(current_stream(*visit.device));
  }
}

void DeviceBackend::meet(const Call& call) {
  meet_and(call, {}, {}, [](const std::vector<Visit>&) {});
}

void DeviceBackend::move(const Call& call, const Blocks& blocks) {
  const int size = getSize(), rank = getRank();
  const auto give = bytes_of(blocks.give), take = bytes_of(blocks.take);
  LocalCall own;
  own.terms.given = give.data();
  own.terms.awaited = take.data();
  const auto device = device_of(blocks.give);
  meet_and(call, own, {.given = &blocks.give, .device = device ? device : device_of(blocks.take)},
           [&](const std::vector<Visit>& all) {
             for (int step = 0; step < size; ++step) {
               const int from = (rank + step) % size;
               if (take[from] == 0) continue;
               copy_block((*all[from].given)[rank], blocks.take[from]);
             }
           });
}

/// Each rank sums its slice of all tensors, and writes it to all.
void DeviceBackend::reduce_in_place(const Call& call, const at::Tensor& tensor, Reduction op, std::optional<int> root) {
  const Visit visit = {.tensor = &tensor, .is_written = !root || getRank() == *root, .device = tensor.device()};
  meet_and(call, {}, visit, [&](const std::vector<Visit>& all) {
    const auto [begin, end] = split_range(tensor.numel(), getSize(), getRank());
    if (begin == end) return;
    Tensors slices;
    for (const auto& its : all) slices.push_back(its.tensor->view({-1}).slice(0, begin, end));
    const auto sum = reduced(slices, op, tensor, all[0].is_written);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].is_written && !slices[rank].is_alias_of(sum)) slices[rank].copy_(sum, /*non_blocking=*/true);
    }
  });
}

void DeviceBackend::reduce_parts(const Call& call, const Tensors& parts, const at::Tensor& output, Reduction op) {
  const auto give = bytes_of(parts);
  const std::vector<int64_t> awaited(getSize(), static_cast<int64_t>(output.nbytes()));
  LocalCall own;
  own.terms.given = give.data();
  own.terms.awaited = awaited.data();
  // Of a sum in place what the other ranks brought is free afterwards: the first rank's is where the sum grows.
  const bool is_in_place = output.is_alias_of(parts[getRank()]);
  const Visit visit = {.given = &parts, .is_written = is_in_place, .device = output.device()};
  meet_and(call, own, visit, [&](const std::vector<Visit>& all) {
    if (output.numel() == 0) return;
    Tensors own_parts;
    for (const auto& its : all) own_parts.push_back((*its.given)[getRank()].view({-1}));
    const auto sum = reduced(own_parts, op, output, all[0].is_written);
    if (!output.is_alias_of(sum)) output.view({-1}).copy_(sum);
  });
}

/// The stream's memory is the caller's: it must not be used again before the stream has done its work.
OwnBackend::Later DeviceBackend::make_later(const Tensors& tensors) {
  const auto device = device_of(tensors);
  if (!device) return {};
  if (!stream_ || stream_->device() != *device) {
    stream_ = c10::impl::VirtualGuardImpl(device->type()).getStreamFromGlobalPool(*device);
  }
  const auto begun = event_of(*device), ended = event_of(*device);
  begun->record(current_stream(*device));
  for (const auto& tensor : tensors) {
    if (tensor.defined()) tensor.record_stream(*stream_);
  }
  return {.around =
              [begun, ended, stream = *stream_](const std::function<void()>& body) {
                const c10::StreamGuard guard(stream);
                begun->block(stream);
                body();
                ended->record(stream);
              },
          .await = [ended, device = *device] { ended->block(current_stream(device)); }};
}

}  // namespace tandem::comm
