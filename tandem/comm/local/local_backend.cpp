#include "tandem/comm/local/local_backend.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/context.h"
#include "tandem/base/ownership.h"
#include "tandem/comm/local/local_reduce.h"
#include "tandem/comm/split.h"

namespace tandem::comm {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;

/// A message that has been sent but may not have been copied by its receiver yet.
class SendWork : public c10d::Work {
 public:
  SendWork(int rank, int to, std::shared_ptr<LocalHub> hub, LocalMailbox::Handle message)
      : Work(rank, OpType::SEND), to_(to), hub_(std::move(hub)), message_(std::move(message)) {}

  bool wait(std::chrono::milliseconds) override {
    try {
      hub_->mailbox.await_acceptance(message_, to_);
    } catch (const LocalFailure& failure) {
      TORCH_CHECK_WITH(DistBackendError, false, "send: ", failure.text);
    }
    return true;
  }

 private:
  const int to_;
  std::shared_ptr<LocalHub> hub_;
  LocalMailbox::Handle message_;
};

/// An imagined rank brings this rank's own block, which may have another size: it is repeated. If it is empty, all bits
/// are set: integers of -1.
void copy_block(const void* source, int64_t source_bytes, void* target, int64_t bytes) {
  if (source == target) return;
  if (source_bytes == 0) {
    if (bytes > 0) std::memset(target, 0xff, static_cast<size_t>(bytes));
    return;
  }
  for (int64_t begin = 0; begin < bytes; begin += source_bytes) {
    std::memcpy(static_cast<std::byte*>(target) + begin, source, std::min(source_bytes, bytes - begin));
  }
}

/// A tensor on its way to another rank.
struct Given {
  at::Tensor tensor;
  bool requires_grad;
  std::shared_ptr<c10::Event> made;  // of the stream that has made it; null: it is on the CPU
};

c10::Stream stream_of(const at::Tensor& tensor) {
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

std::shared_ptr<c10::Event> event_after(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return nullptr;
  auto event = std::make_shared<c10::Event>(tensor.device().type());
  event->record(stream_of(tensor));
  return event;
}

/// On the receiver's device, for its stream.
at::Tensor arrived(at::Tensor tensor, const c10::Event& made) {
  const auto device = c10::impl::VirtualGuardImpl(tensor.device().type()).getDevice();
  const auto stream = stream_of(tensor);
  made.block(stream);
  tensor.record_stream(stream);
  return device == tensor.device() ? tensor : tensor.to(device);
}

// Messages of hand_over() have negative tags, so that they never match those of c10d's send.
int own_tag(int tag) { return -1 - tag; }

/// The bytes of each rank's tensor, and where they are.
struct Memory {
  explicit Memory(const Tensors& tensors) {
    for (const auto& tensor : tensors) {
      data.push_back(tensor.defined() ? tensor.const_data_ptr() : nullptr);
      bytes.push_back(tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0);
    }
  }
  std::vector<const void*> data;
  std::vector<int64_t> bytes;
};

}  // namespace

LocalBackend::LocalBackend(std::shared_ptr<LocalHub> hub, int rank, Transport imagined)
    : OwnBackend(rank, hub->exchange.size()), hub_(std::move(hub)), transport_(imagined) {}

/// Runs `work` while all ranks' memory may be accessed. If it throws, this rank stays until the other ranks are done.
template <class Work>
void LocalBackend::meet_and(const Call& call, LocalCall own, const Work& work) {
  describe(call, own);
  hub_->exchange.meet(getRank(), own);
  try {
    work();
  } catch (...) {
    hub_->exchange.part(getRank());
    throw;
  }
  hub_->exchange.part(getRank());
}

void LocalBackend::meet(const Call& call) {
  meet_and(call, {}, [] {});
}

void LocalBackend::move(const Call& call, const Blocks& blocks) {
  const int size = getSize(), rank = getRank();
  const Memory give(blocks.give), take(blocks.take);
  LocalCall own;
  own.terms.given = give.bytes.data();
  own.terms.awaited = take.bytes.data();
  own.blocks = give.data.data();
  meet_and(call, own, [&] {
    for (int step = 0; step < size; ++step) {
      const int from = (rank + step) % size;  // the ranks do not all read the same rank's memory at once
      if (take.bytes[from] == 0) continue;
      const auto& its = hub_->exchange.call(from);
      copy_block(its.blocks[rank], its.terms.given[rank], blocks.take[from].data_ptr(), take.bytes[from]);
    }
  });
}

void LocalBackend::reduce_in_place(const Call& call, const at::Tensor& tensor, Reduction op, std::optional<int> root) {
  LocalCall own;
  own.input = tensor.const_data_ptr();
  if (!root || getRank() == *root) own.output = tensor.data_ptr();
  meet_and(call, own, [&] {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (int rank = 0; rank < getSize(); ++rank) {
      const auto& its = hub_->exchange.call(rank);
      inputs.push_back(its.input);
      if (its.output != nullptr) outputs.push_back(its.output);
    }
    const auto [begin, end] = split_range(tensor.numel(), getSize(), getRank());
    reduce_slice(tensor.scalar_type(), op, inputs, outputs, begin, end);
  });
}

/// Each rank reads its part from all ranks' memory; no buffer is needed.
void LocalBackend::reduce_parts(const Call& call, const Tensors& parts, const at::Tensor& output, Reduction op) {
  const Memory give(parts);
  const std::vector<int64_t> awaited(getSize(), static_cast<int64_t>(output.nbytes()));
  LocalCall own;
  own.terms.given = give.bytes.data();
  own.terms.awaited = awaited.data();
  own.blocks = give.data.data();
  meet_and(call, own, [&] {
    std::vector<const void*> inputs;
    for (int rank = 0; rank < getSize(); ++rank) inputs.push_back(hub_->exchange.call(rank).blocks[getRank()]);
    void* target = output.data_ptr();
    reduce_slice(output.scalar_type(), op, inputs, {&target, 1}, 0, output.numel());
  });
}

LocalBackend::WorkPointer LocalBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& options) {
  const auto work = OwnBackend::_allgather_base(output, input, options);
  // Gloo makes a copy, at any time until it has ended.
  if (transport_ == Transport::sockets) hold(*work, at::empty_like(output));
  return work;
}

LocalBackend::WorkPointer LocalBackend::send(Tensors& tensors, int to, int tag) {
  const auto tensor = only(tensors, "send");
  if (hub_->is_alone) return run(OpType::SEND, "send", {}, {}, [] {});
  auto message = hub_->mailbox.post(getRank(), to, tag, std::make_shared<at::Tensor>(tensor));
  return c10::make_intrusive<SendWork>(getRank(), to, hub_, std::move(message));
}

LocalBackend::WorkPointer LocalBackend::receive(Tensors& tensors, int from, int tag) {
  const auto tensor = only(tensors, "recv");
  if (hub_->is_alone) {
    return run(OpType::RECV, "recv", tensors, {}, [tensor] { tensor.fill_(tensor.is_floating_point() ? 0 : -1); });
  }
  try {
    const auto message = hub_->mailbox.take(from, getRank(), tag);
    const auto& sent = *static_cast<at::Tensor*>(message->content.get());
    if (sent.nbytes() != tensor.nbytes() || sent.scalar_type() != tensor.scalar_type()) {
      throw LocalFailure{LocalFailure::Kind::mismatch,
                         "rank " + std::to_string(message->from) + " sends " + sent.toString() + " of " +
                             std::to_string(sent.nbytes()) + " bytes, rank " + std::to_string(getRank()) + " awaits " +
                             tensor.toString() + " of " + std::to_string(tensor.nbytes())};
    }
    if (sent.nbytes() > 0) std::memcpy(tensor.data_ptr(), sent.const_data_ptr(), sent.nbytes());
    hub_->mailbox.accept(message);
  } catch (const LocalFailure& failure) {
    fail("recv", failure);
  }
  return done(OpType::RECV, tensors);
}

LocalBackend::WorkPointer LocalBackend::recv(Tensors& tensors, int from, int tag) {
  return receive(tensors, from, tag);
}

LocalBackend::WorkPointer LocalBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, LocalMailbox::kAnySource, tag);
}

void LocalBackend::hand_over(at::Tensor tensor, bool requires_grad, int to, int tag) {
  // A part of a storage would keep all of the storage alive: it is copied too.
  const bool is_sole = tensor.use_count() == 1 && tensor.storage().use_count() == 1;
  const bool is_whole = tensor.is_non_overlapping_and_dense() && tensor.storage().nbytes() == tensor.nbytes();
  // On its way it is in nobody's books: how long that takes, no rank decides alone.
  auto nobody = current_context();
  nobody.rank = Context::kNobody;
  const ContextScope on_its_way(nobody);
  if (is_sole && is_whole) {
    adopt(tensor);
  } else {
    tensor = tensor.clone(at::MemoryFormat::Preserve);
  }
  auto made = event_after(tensor);
  hub_->mailbox.post(getRank(), to, own_tag(tag),
                     std::make_shared<Given>(Given{std::move(tensor), requires_grad, std::move(made)}));
}

std::pair<at::Tensor, bool> LocalBackend::take_over(int from, int tag) {
  try {
    const auto message = hub_->mailbox.take(from, getRank(), own_tag(tag));
    auto given = std::move(*static_cast<Given*>(message->content.get()));
    if (given.made) given.tensor = arrived(std::move(given.tensor), *given.made);
    adopt(given.tensor);
    return {std::move(given.tensor), given.requires_grad};
  } catch (const LocalFailure& failure) {
    hub_->abort(failure.text);
    TORCH_CHECK_WITH(DistBackendError, false, failure.text);
  }
}

}  // namespace tandem::comm
