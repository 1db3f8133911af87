#include "tandem/comm/local/local_backend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>

#include "tandem/base/context.h"
#include "tandem/base/ownership.h"
#include "tandem/comm/local/local_reduce.h"
#include "tandem/comm/split.h"
#include "tandem/flight/call_info.h"

namespace tandem::comm {
namespace {

using c10d::OpType;
using c10d::ReduceOp;
using Tensors = std::vector<at::Tensor>;
using Future = c10::ivalue::Future;

c10::intrusive_ptr<Future> make_future() {
  return c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
}

/// Either complete, or waiting for the group's thread.
class LocalWork : public c10d::Work {
 public:
  LocalWork(int rank, OpType type, Tensors results) : Work(rank, type), results_(std::move(results)) {}

  void complete(std::exception_ptr fault) {
    finish(fault);  // wakes threads in Work::wait
    const std::lock_guard lock(mutex_of_future_);
    is_complete_ = true;
    fault_ = std::move(fault);
    if (future_) settle();
  }

  Tensors result() override { return results_; }

  /// Memory that is needed while the work lives.
  void hold(at::Tensor scratch) { scratch_ = std::move(scratch); }

  c10::intrusive_ptr<Future> getFuture() override {
    const std::lock_guard lock(mutex_of_future_);
    if (!future_) {
      future_ = make_future();
      if (is_complete_) settle();
    }
    return future_;
  }

 private:
  void settle() {
    if (fault_) {
      future_->setError(fault_);
    } else {
      future_->markCompleted(c10::IValue(results_));
    }
  }

  const Tensors results_;
  at::Tensor scratch_;
  std::mutex mutex_of_future_;
  c10::intrusive_ptr<Future> future_;
  bool is_complete_ = false;
  std::exception_ptr fault_;
};

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

uint64_t signature_of(const at::Tensor& tensor, uint64_t detail) {
  return (static_cast<uint64_t>(tensor.numel()) << 16) ^ (static_cast<uint64_t>(tensor.scalar_type()) << 8) ^ detail;
}

uint64_t type_of(const at::Tensor& tensor) { return static_cast<uint64_t>(tensor.scalar_type()); }

void check_tensor(const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), operation, ": tensor is on ", tensor.device(), ", wanted cpu");
  TORCH_CHECK_VALUE(tensor.is_contiguous(), operation, ": tensor is not contiguous");
}

at::Tensor only(const Tensors& tensors, const char* operation) {
  TORCH_CHECK_VALUE(tensors.size() == 1, operation, ": list has ", tensors.size(), " tensors, wanted 1");
  check_tensor(tensors[0], operation);
  return tensors[0];
}

Tensors checked_list(const std::vector<Tensors>& lists, int size, const char* operation) {
  TORCH_CHECK_VALUE(lists.size() == 1 && static_cast<int>(lists[0].size()) == size, operation, ": wanted one list of ",
                    size, " tensors, one a rank");
  for (const auto& tensor : lists[0]) check_tensor(tensor, operation);
  return lists[0];
}

/// The rows of a tensor for each rank, as views; equal parts if `splits` is empty.
Tensors rows_of(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size) {
  Tensors parts;
  const auto rows = splits.empty() ? std::vector<int64_t>(size, tensor.size(0) / size) : splits;
  int64_t at = 0;
  for (const auto count : rows) {
    parts.push_back(tensor.narrow(0, at, count));
    at += count;
  }
  return parts;
}

/// An imagined rank brings this rank's own block, which may have another size: it is repeated. If it is empty, all bits
/// are set: integers of -1.
void copy_block(const LocalBlock& source, void* target, int64_t bytes) {
  if (source.data == target) return;
  if (source.bytes == 0) {
    if (bytes > 0) std::memset(target, 0xff, static_cast<size_t>(bytes));
    return;
  }
  for (int64_t begin = 0; begin < bytes; begin += source.bytes) {
    std::memcpy(static_cast<std::byte*>(target) + begin, source.data, std::min(source.bytes, bytes - begin));
  }
}

using Given = std::pair<at::Tensor, bool>;

// Messages of hand_over() have negative tags, so that they never match those of c10d's send.
int own_tag(int tag) { return -1 - tag; }

std::string describe_call(const void* subject) { return static_cast<const flight::CallInfo*>(subject)->describe(); }

std::string describe_plain(const void* subject) { return static_cast<const char*>(subject); }

}  // namespace

LocalBackend::LocalBackend(std::shared_ptr<LocalHub> hub, int rank, Transport imagined)
    : Backend(rank, hub->exchange.size()), hub_(std::move(hub)), transport_(imagined) {}

LocalCall LocalBackend::call(const char* operation, uint64_t signature) const {
  const auto* known = flight::current_call();
  LocalCall call;
  call.operation = known ? known->operation : operation;
  call.signature = signature;
  call.describe = known ? &describe_call : &describe_plain;
  call.subject = known ? static_cast<const void*>(known) : operation;
  return call;
}

/// Runs `work` while all ranks' memory may be accessed. If it throws, this rank stays until the other ranks are done.
template <class Work>
void LocalBackend::meet_and(const LocalCall& own, const Work& work) {
  hub_->exchange.meet(getRank(), own);
  try {
    work();
  } catch (...) {
    hub_->exchange.part(getRank());
    throw;
  }
  hub_->exchange.part(getRank());
}

/// Runs `body`, which calls meet() and part(), either now or on the group's thread. That thread holds no tensor any
/// more when the work is complete, so that whoever has waited frees memory by letting go of it.
LocalBackend::WorkPointer LocalBackend::run(OpType type, const char* operation, Tensors results, Body body) {
  Body guarded = [this, operation, body = std::move(body)] {
    try {
      body();
    } catch (const LocalFailure& failure) {
      // If this rank left alone, the others would access memory that is gone: abort them as well.
      hub_->abort(failure.text);
      TORCH_CHECK_WITH(DistBackendError, false, operation, ": ", failure.text);
    }
  };
  auto work = c10::make_intrusive<LocalWork>(getRank(), type, is_later_ ? Tensors() : std::move(results));
  if (!is_later_) {
    queue_.drain();
    guarded();
    work->complete(nullptr);
    return work;
  }
  const auto* known = flight::current_call();
  queue_.push([guarded = std::move(guarded), work, context = current_context(),
               info = known ? std::optional(*known) : std::nullopt]() mutable {
    const ContextScope scope(context);
    const flight::CallScope call(info ? &*info : nullptr);
    std::exception_ptr fault;
    try {
      guarded();
    } catch (...) {
      fault = std::current_exception();
    }
    guarded = nullptr;
    work->complete(fault);
  });
  return work;
}

void LocalBackend::move_blocks(const char* operation, uint64_t signature, const std::vector<LocalBlock>& give,
                               const Tensors& take) {
  const int size = getSize(), rank = getRank();
  std::vector<int64_t> awaited(size, 0);
  for (int from = 0; from < size; ++from) {
    if (take[from].defined()) awaited[from] = static_cast<int64_t>(take[from].nbytes());
  }
  auto own = call(operation, signature);
  own.blocks = give.data();
  own.awaited = awaited.data();
  meet_and(own, [&] {
    for (int step = 0; step < size; ++step) {
      const int from = (rank + step) % size;  // the ranks do not all read the same rank's memory at once
      if (awaited[from] == 0) continue;
      copy_block(hub_->exchange.call(from).blocks[rank], take[from].data_ptr(), awaited[from]);
    }
  });
}

/// give[j]: block for rank j. take[i]: destination of the block from rank i. Undefined: no block.
LocalBackend::WorkPointer LocalBackend::start_move(OpType type, const char* operation, uint64_t signature, Tensors give,
                                                   Tensors take) {
  Tensors results;
  for (const auto& tensor : take) {
    if (tensor.defined()) results.push_back(tensor);
  }
  return run(type, operation, results, [this, operation, signature, give, take] {
    std::vector<LocalBlock> blocks(getSize());
    for (int to = 0; to < getSize(); ++to) {
      if (give[to].defined()) blocks[to] = {give[to].const_data_ptr(), static_cast<int64_t>(give[to].nbytes())};
    }
    move_blocks(operation, signature, blocks, take);
  });
}

LocalBackend::WorkPointer LocalBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const auto tensor = only(tensors, "broadcast");
  const int root = static_cast<int>(options.rootRank);
  const bool is_root = getRank() == root;
  Tensors give(getSize()), take(getSize());
  if (is_root) give.assign(getSize(), tensor);
  take[root] = tensor;  // the root's own tensor is not copied
  return start_move(OpType::BROADCAST, "broadcast", signature_of(tensor, root + 1), give, take);
}

LocalBackend::WorkPointer LocalBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const auto tensor = only(tensors, "all_reduce");
  const ReduceOp::RedOpType op = options.reduceOp;
  return run(OpType::ALLREDUCE, "all_reduce", {tensor}, [this, tensor, op] {
    auto own = call("all_reduce", signature_of(tensor, op));
    own.output = tensor.data_ptr();
    meet_and(own, [&] {
      std::vector<void*> all;
      for (int rank = 0; rank < getSize(); ++rank) all.push_back(hub_->exchange.call(rank).output);
      const auto [begin, end] = split_range(tensor.numel(), getSize(), getRank());
      reduce_slice(tensor.scalar_type(), op, {all.begin(), all.end()}, all, begin, end);
    });
  });
}

LocalBackend::WorkPointer LocalBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const auto tensor = only(tensors, "reduce_sum");
  const ReduceOp::RedOpType op = options.reduceOp;
  const int root = static_cast<int>(options.rootRank);
  return run(OpType::REDUCE, "reduce_sum", {tensor}, [this, tensor, op, root] {
    auto own = call("reduce_sum", signature_of(tensor, op + 16 * root));
    own.input = tensor.const_data_ptr();
    if (getRank() == root) own.output = tensor.data_ptr();
    meet_and(own, [&] {
      std::vector<const void*> inputs;
      for (int rank = 0; rank < getSize(); ++rank) inputs.push_back(hub_->exchange.call(rank).input);
      void* target = hub_->exchange.call(root).output;
      const auto [begin, end] = split_range(tensor.numel(), getSize(), getRank());
      reduce_slice(tensor.scalar_type(), op, inputs, {&target, 1}, begin, end);
    });
  });
}

LocalBackend::WorkPointer LocalBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions&) {
  const auto input = only(inputs, "all_gather");
  return start_move(OpType::ALLGATHER, "all_gather", type_of(input), Tensors(getSize(), input),
                    checked_list(outputs, getSize(), "all_gather"));
}

LocalBackend::WorkPointer LocalBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& options) {
  check_tensor(output, "all_gather");
  TORCH_CHECK_VALUE(output.numel() == input.numel() * getSize(), "all_gather: output has ", output.numel(),
                    " elements, wanted ", input.numel() * getSize());
  at::Tensor copy;  // as Gloo makes, at any time until it has ended
  if (transport_ == Transport::sockets) copy = at::empty_like(output);
  std::vector<Tensors> outputs = {rows_of(output.view({-1}), {}, getSize())};
  Tensors inputs = {input};
  const auto work = allgather(outputs, inputs, options);
  static_cast<LocalWork&>(*work).hold(std::move(copy));
  return work;
}

LocalBackend::WorkPointer LocalBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                               const c10d::GatherOptions& options) {
  const auto input = only(inputs, "gather");
  const int root = static_cast<int>(options.rootRank);
  Tensors give(getSize()), take(getSize());
  give[root] = input;
  if (getRank() == root) take = checked_list(outputs, getSize(), "gather");
  return start_move(OpType::GATHER, "gather", type_of(input) + 256 * root, give, take);
}

LocalBackend::WorkPointer LocalBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                const c10d::ScatterOptions& options) {
  const auto output = only(outputs, "scatter");
  const int root = static_cast<int>(options.rootRank);
  Tensors give(getSize()), take(getSize());
  take[root] = output;
  if (getRank() == root) give = checked_list(inputs, getSize(), "scatter");
  return start_move(OpType::SCATTER, "scatter", type_of(output) + 256 * root, give, take);
}

LocalBackend::WorkPointer LocalBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) {
  const auto give = checked_list({inputs}, getSize(), "all_to_all");
  const auto take = checked_list({outputs}, getSize(), "all_to_all");
  return start_move(OpType::ALLTOALL, "all_to_all", type_of(inputs[0]), give, take);
}

LocalBackend::WorkPointer LocalBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                      std::vector<int64_t>& output_splits,
                                                      std::vector<int64_t>& input_splits,
                                                      const c10d::AllToAllOptions& options) {
  check_tensor(input, "all_to_all");
  check_tensor(output, "all_to_all");
  auto give = rows_of(input, input_splits, getSize()), take = rows_of(output, output_splits, getSize());
  return alltoall(take, give, options);
}

LocalBackend::WorkPointer LocalBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                       const c10d::ReduceScatterOptions& options) {
  return start_reduce_scatter(checked_list(inputs, getSize(), "reduce_scatter"), only(outputs, "reduce_scatter"),
                              options.reduceOp);
}

LocalBackend::WorkPointer LocalBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                             const c10d::ReduceScatterOptions& options) {
  check_tensor(input, "reduce_scatter");
  check_tensor(output, "reduce_scatter");
  TORCH_CHECK_VALUE(input.numel() == output.numel() * getSize(), "reduce_scatter: input has ", input.numel(),
                    " elements, wanted ", output.numel() * getSize());
  return start_reduce_scatter(rows_of(input.view({-1}), {}, getSize()), output, options.reduceOp);
}

/// Each rank reads its part from all ranks' memory; no buffer is needed.
LocalBackend::WorkPointer LocalBackend::start_reduce_scatter(Tensors parts, at::Tensor output, ReduceOp::RedOpType op) {
  return run(OpType::REDUCE_SCATTER, "reduce_scatter", {output}, [this, parts, output, op] {
    std::vector<LocalBlock> blocks;
    for (const auto& part : parts) blocks.push_back({part.const_data_ptr(), static_cast<int64_t>(part.nbytes())});
    const std::vector<int64_t> awaited(getSize(), static_cast<int64_t>(output.nbytes()));
    auto own = call("reduce_scatter", type_of(output) + 256 * static_cast<uint64_t>(op));
    own.blocks = blocks.data();
    own.awaited = awaited.data();
    meet_and(own, [&] {
      std::vector<const void*> inputs;
      for (int rank = 0; rank < getSize(); ++rank) inputs.push_back(hub_->exchange.call(rank).blocks[getRank()].data);
      void* target = output.data_ptr();
      reduce_slice(output.scalar_type(), op, inputs, {&target, 1}, 0, output.numel());
    });
  });
}

LocalBackend::WorkPointer LocalBackend::barrier(const c10d::BarrierOptions&) {
  return run(OpType::BARRIER, "barrier", {}, [this] { meet_and(call("barrier", 0), [] {}); });
}

LocalBackend::WorkPointer LocalBackend::send(Tensors& tensors, int to, int tag) {
  const auto tensor = only(tensors, "send");
  if (hub_->is_alone) return run(OpType::SEND, "send", {}, [] {});
  auto message = hub_->mailbox.post(getRank(), to, tag, std::make_shared<at::Tensor>(tensor));
  return c10::make_intrusive<SendWork>(getRank(), to, hub_, std::move(message));
}

LocalBackend::WorkPointer LocalBackend::receive(Tensors& tensors, int from, int tag) {
  const auto tensor = only(tensors, "recv");
  if (hub_->is_alone) {
    return run(OpType::RECV, "recv", tensors, [tensor] { tensor.fill_(tensor.is_floating_point() ? 0 : -1); });
  }
  auto work = c10::make_intrusive<LocalWork>(getRank(), OpType::RECV, tensors);
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
    hub_->abort(failure.text);
    TORCH_CHECK_WITH(DistBackendError, false, "recv: ", failure.text);
  }
  work->complete(nullptr);
  return work;
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
  const bool is_whole = tensor.is_contiguous() && tensor.storage().nbytes() == tensor.nbytes();
  if (!is_sole || !is_whole) tensor = tensor.clone(at::MemoryFormat::Contiguous);
  hub_->mailbox.post(getRank(), to, own_tag(tag), std::make_shared<Given>(std::move(tensor), requires_grad));
}

std::pair<at::Tensor, bool> LocalBackend::take_over(int from, int tag) {
  try {
    const auto message = hub_->mailbox.take(from, getRank(), own_tag(tag));
    auto given = std::move(*static_cast<Given*>(message->content.get()));
    adopt(given.first);
    return given;
  } catch (const LocalFailure& failure) {
    hub_->abort(failure.text);
    TORCH_CHECK_WITH(DistBackendError, false, failure.text);
  }
}

}  // namespace tandem::comm
