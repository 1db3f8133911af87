#include "tandem/comm/detail/transfer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "tandem/comm/detail/element_types.h"
#include "tandem/comm/detail/parts_exchange.h"
#include "tandem/comm/detail/recorded_call.h"
#include "tandem/comm/detail/staged_backend.h"
#include "tandem/comm/detail/sum_exchange.h"
#include "tandem/comm/local/local_reduce.h"
#include "tandem/comm/local/own_backend.h"
#include "tandem/comm/split.h"
#include "tandem/comm/wire_bytes.h"

namespace tandem::comm::detail {
namespace {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

c10d::Backend& backend_of(const Caller& caller, const Tensor& x) {
  return caller.group.calls().backend(x.device().type());
}

/// Over sockets, parts must have equal sizes; memory and NCCL support any sizes.
bool is_over_sockets(const Caller& caller, const Tensor& x) {
  return x.is_cpu() && caller.group.transport() == Transport::sockets;
}

WireBytes wire_of(const Caller& caller) { return {caller.group.rank(), caller.group.size()}; }

c10d::ReduceOp::RedOpType to_c10d(Reduce op) {
  switch (op) {
    case Reduce::mean:
      return c10d::ReduceOp::AVG;
    case Reduce::max:
      return c10d::ReduceOp::MAX;
    case Reduce::min:
      return c10d::ReduceOp::MIN;
    default:
      return c10d::ReduceOp::SUM;
  }
}

/// If `later`, an OwnBackend runs the calls of this scope on a thread of its group.
class LaterScope {
 public:
  explicit LaterScope(const Caller& caller) : calls_(caller.later ? &caller.group.calls() : nullptr) {
    if (calls_ != nullptr) calls_->run_later(true);
  }
  ~LaterScope() {
    if (calls_ != nullptr) calls_->run_later(false);
  }
  LaterScope(const LaterScope&) = delete;
  LaterScope& operator=(const LaterScope&) = delete;

 private:
  GroupCalls* calls_;
};

/// Gloo's thread drops what a call has used some time after it has told that the call is complete. Whoever waits shall
/// free memory by letting go of it.
void await_release(const WorkPointer& work) {
  constexpr int kMost = 10'000;
  for (int i = 0; work.use_count() > 1 && i < kMost; ++i) std::this_thread::yield();
}

/// Counts, records and launches one call. `launch` may return null: then nothing has to be sent.
template <class Launch, class Finish>
Handle start(const Caller& caller, flight::CallInfo info, const std::vector<int64_t>& bytes, Launch launch,
             Finish finish) {
  RecordedCall call(caller.group, std::move(info), bytes);
  auto work = call.run([&]() -> WorkPointer {
    const flight::CallScope scope(&call.info());
    const LaterScope later(caller);
    return launch();
  });
  return Handle([call = std::move(call), work, finish = std::move(finish)] {
    call.run([&] {
      if (!work) return;
      work->wait();
      await_release(work);
    });
    call.end();
    return finish();
  });
}

int64_t row_bytes_of(const Tensor& rows) {
  const auto shape = rows.sizes().slice(1);
  return std::accumulate(shape.begin(), shape.end(), static_cast<int64_t>(rows.element_size()), std::multiplies<>());
}

/// Between processes, larger parts travel as messages, which need less memory; small ones in one call of Gloo, which
/// wakes each rank once.
bool are_large(int64_t largest_rows, const Tensor& rows) {
  constexpr int64_t kSmallBytes = 1 << 20;
  return largest_rows * row_bytes_of(rows) > kSmallBytes;
}

Sizes times(Sizes sizes, int64_t factor) {
  for (auto& size : sizes) size *= factor;
  return sizes;
}

Tensor empty_rows(const Tensor& like, int64_t count) {
  auto shape = like.sizes().vec();
  shape[0] = count;
  return at::empty(shape, like.options());
}

std::vector<Tensor> cut(const Tensor& rows, const Sizes& sizes) {
  std::vector<Tensor> parts;
  int64_t at = 0;
  for (const auto size : sizes) {
    parts.push_back(rows.narrow(0, at, size));
    at += size;
  }
  return parts;
}

/// A call that works on x in place. An empty tensor is not sent.
template <class Launch, class Finish>
Handle start_in_place(Tensor x, const Caller& caller, flight::CallInfo call, const std::vector<int64_t>& bytes,
                      Launch launch, Finish finish) {
  const auto launch_unless_empty = [&]() -> WorkPointer {
    if (x.numel() == 0) return nullptr;
    std::vector<Tensor> tensors = {x};
    return launch(tensors);
  };
  return start(caller, std::move(call), bytes, launch_unless_empty, [x, finish] { return finish(x); });
}

Tensor unchanged(const Tensor& x) { return x; }

/// Starts a call with a copy of x that is on the host. The result goes to the device of x.
template <class Start>
Handle through_host(const Tensor& x, const Start& start) {
  return Handle(
      [device = x.device(), begun = std::make_shared<Handle>(start(x.cpu()))] { return begun->wait().to(device); });
}

/// The same for a call that works on x in place.
template <class Start>
Handle in_place_through_host(const Tensor& x, const Start& start) {
  return Handle([x, begun = std::make_shared<Handle>(start(x.cpu()))] {
    const at::NoGradGuard no_grad;
    return x.copy_(begun->wait());
  });
}

/// A call that `exchange` makes of messages; see PartsExchange and SumExchange.
template <class Exchange>
Handle start_messages(const Caller& caller, flight::CallInfo call, const std::vector<int64_t>& bytes,
                      c10::intrusive_ptr<Exchange> exchange, Tensor result) {
  return start(
      caller, std::move(call), bytes,
      [&]() -> WorkPointer {
        exchange->begin();
        return std::move(exchange);  // whoever has waited holds the only one
      },
      [result = std::move(result)] { return result; });
}

/// Sends and receives rows. `sent`, `received`: number of rows (dim 0) to and from each rank.
template <class Finish>
Handle start_exchange(Tensor rows, const Caller& caller, flight::CallInfo call, const std::vector<int64_t>& bytes,
                      Sizes sent, Sizes received, Finish finish) {
  auto result = empty_rows(rows, sum_of(received));
  return start(
      caller, std::move(call), bytes,
      [&] { return backend_of(caller, rows).alltoall_base(result, rows, received, sent); },
      [result, finish] { return finish(result); });
}

const char* name_of(c10::DeviceType device) { return device == c10::DeviceType::CUDA ? "cuda" : "another device"; }

flight::CallInfo info_of(const char* operation, const Tensor& x, const Caller& caller) {
  flight::CallInfo call;
  call.operation = operation;
  call.shape = x.sizes().vec();
  call.type = c10::toString(x.scalar_type());
  if (!x.is_cpu()) call.device = name_of(x.device().type());
  call.requires_grad = caller.requires_grad;
  call.where = caller.where;
  return call;
}

/// `sizes`: those of all ranks, if all ranks know them; else empty.
flight::CallInfo with_split(flight::CallInfo call, const Caller& caller, const Sizes& sizes) {
  if (!caller.group.calls().instruments()->check) return call;
  call.split = "dim " + std::to_string(caller.dim);
  for (size_t i = 0; i < sizes.size(); ++i) call.split += (i ? ", " : ", sizes ") + std::to_string(sizes[i]);
  return call;
}

/// For a call in which each rank may have another number of rows.
flight::CallInfo info_of_rows(const char* operation, const Tensor& rows, const Caller& caller, const Sizes& sizes) {
  auto call = with_split(info_of(operation, rows, caller), caller, sizes);
  call.dim = 0;
  return call;
}

flight::CallInfo with_root(flight::CallInfo call, int root) {
  call.peer = root;
  return call;
}

const char* name_of(Reduce op) {
  constexpr const char* kNames[] = {"sum", "mean", "max", "min"};
  return kNames[static_cast<int>(op)];
}

/// Moves the parts to the front, rank i's of sizes[i] rows from row i * largest, and cuts off the rest.
Tensor packed(Tensor all, const Sizes& sizes, int64_t largest) {
  auto* bytes = static_cast<std::byte*>(all.mutable_data_ptr());
  const auto row = static_cast<size_t>(row_bytes_of(all));
  size_t end = 0;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto own = static_cast<size_t>(sizes[rank]) * row;
    std::memmove(bytes + end, bytes + rank * static_cast<size_t>(largest) * row, own);
    end += own;
  }
  auto shape = all.sizes().vec();
  shape[0] = sum_of(sizes);
  const bool is_mostly_data = shape[0] >= all.size(0) - all.size(0) / 8;
  all.resize_(shape);
  return is_mostly_data ? all : all.clone();  // a result does not hold much padding
}

/// Nobody reads the padding but a rehearsal, in which it stands for rows of other ranks: of their kind, or else of set
/// bits, as between thread-ranks.
void repeat_rows(const Tensor& rows, const Tensor& target) {
  const int64_t own = rows.size(0), wanted = target.size(0);
  if (own == 0 && target.nbytes() > 0) std::memset(target.mutable_data_ptr(), 0xff, target.nbytes());
  for (int64_t at = 0; own > 0 && at < wanted; at += own) {
    const int64_t count = std::min(own, wanted - at);
    target.narrow(0, at, count).copy_(rows.narrow(0, 0, count));
  }
}

/// `own`: what this rank brings, if it is not there.
Handle start_parts_exchange(const Tensor& all, const Tensor& own, const Caller& caller, const flight::CallInfo& call,
                            const Sizes& bytes, const Sizes& sizes) {
  auto parts = cut(all, sizes);
  if (own.defined()) parts[caller.group.rank()].copy_(own);
  return start_messages(caller, call, bytes, c10::make_intrusive<PartsExchange>(std::move(parts), caller.group), all);
}

/// Gloo supports equal parts only: uneven parts are padded to the largest, and packed afterwards.
Handle start_all_gather_over_sockets(const Tensor& rows, const Caller& caller, Sizes sizes) {
  const int64_t largest = *std::max_element(sizes.begin(), sizes.end()), own = rows.size(0);
  const auto call = info_of_rows("all_gather", rows, caller, sizes);
  const auto bytes = wire_of(caller).all_gather(static_cast<int64_t>(rows.nbytes()));
  if (are_large(largest, rows)) {
    return start_parts_exchange(empty_rows(rows, sum_of(sizes)), rows, caller, call, bytes, sizes);
  }
  auto all = empty_rows(rows, largest * caller.group.size());
  auto padded = rows;
  if (own != largest) {
    padded = all.narrow(0, caller.group.rank() * largest, largest);
    repeat_rows(rows, padded);
  }
  const bool is_even = std::ranges::all_of(sizes, [&](int64_t n) { return n == largest; });
  return start(
      caller, call, bytes, [&] { return backend_of(caller, rows)._allgather_base(all, padded); },
      [all, sizes = std::move(sizes), largest, is_even] { return is_even ? all : packed(all, sizes, largest); });
}

/// Sums in one pass and in rank order, which gives the same bits as thread-ranks.
Tensor sum_of_parts(const Tensor& parts, int64_t rows, int ranks) {
  auto sum = empty_rows(parts, rows);
  std::vector<const void*> inputs;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(parts.narrow(0, rank * rows, rows).const_data_ptr());
  void* output = sum.mutable_data_ptr();
  reduce_slice(sum.scalar_type(), c10d::ReduceOp::SUM, inputs, {&output, 1}, 0, sum.numel());
  return sum;
}

/// Gloo's own reduce_scatter moves twice the bytes.
Handle start_reduce_scatter_over_sockets(Tensor rows, const Caller& caller, flight::CallInfo call, const Sizes& bytes,
                                         Sizes sizes) {
  const int64_t largest = *std::ranges::max_element(sizes), own = sizes[caller.group.rank()];
  const int ranks = caller.group.size();
  if (!are_large(largest, rows)) {
    return start_exchange(std::move(rows), caller, std::move(call), bytes, std::move(sizes), Sizes(ranks, own),
                          [own, ranks](const Tensor& parts) { return sum_of_parts(parts, own, ranks); });
  }
  auto exchange = c10::make_intrusive<SumExchange>(std::move(rows), sizes, caller.group);
  auto result = exchange->result();
  return start_messages(caller, std::move(call), bytes, std::move(exchange), std::move(result));
}

}  // namespace

int64_t checked_dim(const Tensor& x, int64_t dim, const char* operation) {
  TORCH_CHECK_VALUE(x.dim() > 0, operation, ": tensor has no dims, wanted 1 or more");
  return at::maybe_wrap_dim(dim, x.dim());
}

Handle start_all_reduce(Tensor x, const Caller& caller, Reduce op) {
  if (is_staged(x, caller.group)) {
    return in_place_through_host(x, [&](const Tensor& copy) { return start_all_reduce(copy, caller, op); });
  }
  check_reducible(x, "all_reduce", op);
  auto call = info_of("all_reduce", x, caller);
  call.detail = name_of(op);
  const bool divide = op == Reduce::mean && !caller.group.calls().own();  // Gloo has no mean
  const auto bytes = wire_of(caller).all_reduce(x.numel(), x.element_size());
  const auto launch = [&](std::vector<Tensor>& tensors) {
    c10d::AllreduceOptions options;
    options.reduceOp = to_c10d(divide ? Reduce::sum : op);
    return backend_of(caller, tensors[0]).allreduce(tensors, options);
  };
  return start_in_place(x, caller, std::move(call), bytes, launch,
                        [divide, size = caller.group.size()](Tensor sum) { return divide ? sum.div_(size) : sum; });
}

Handle start_reduce_sum(Tensor x, const Caller& caller, int root) {
  if (is_staged(x, caller.group)) {
    return in_place_through_host(x, [&](const Tensor& copy) { return start_reduce_sum(copy, caller, root); });
  }
  check_reducible(x, "reduce_sum", Reduce::sum);
  const auto bytes = wire_of(caller).reduce_sum(root, static_cast<int64_t>(x.nbytes()));
  const auto launch = [&](std::vector<Tensor>& tensors) {
    c10d::ReduceOptions options;
    options.rootRank = root;
    return backend_of(caller, tensors[0]).reduce(tensors, options);
  };
  return start_in_place(x, caller, with_root(info_of("reduce_sum", x, caller), root), bytes, launch, unchanged);
}

Handle start_broadcast(Tensor x, const Caller& caller, int root) {
  if (is_staged(x, caller.group)) {
    return in_place_through_host(x, [&](const Tensor& copy) { return start_broadcast(copy, caller, root); });
  }
  check_movable(x, "broadcast", caller.group);
  const auto bytes = wire_of(caller).broadcast(root, static_cast<int64_t>(x.nbytes()));
  const auto launch = [&](std::vector<Tensor>& tensors) {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return backend_of(caller, tensors[0]).broadcast(tensors, options);
  };
  return start_in_place(x, caller, with_root(info_of("broadcast", x, caller), root), bytes, launch, unchanged);
}

Handle start_all_gather(Tensor rows, const Caller& caller, Sizes sizes) {
  if (is_staged(rows, caller.group)) {
    return through_host(rows, [&](const Tensor& copy) { return start_all_gather(copy, caller, sizes); });
  }
  check_movable(rows, "all_gather", caller.group);
  if (is_over_sockets(caller, rows)) return start_all_gather_over_sockets(rows, caller, std::move(sizes));
  auto all = empty_rows(rows, sum_of(sizes));
  const auto bytes = wire_of(caller).all_gather(static_cast<int64_t>(rows.nbytes()));
  return start(
      caller, info_of_rows("all_gather", rows, caller, sizes), bytes,
      [&] {
        std::vector<std::vector<Tensor>> outputs = {cut(all, sizes)};
        std::vector<Tensor> inputs = {rows};
        return backend_of(caller, rows).allgather(outputs, inputs);
      },
      [all] { return all; });
}

Handle start_reduce_scatter(Tensor rows, const Caller& caller, Sizes sizes) {
  if (is_staged(rows, caller.group)) {
    return through_host(rows, [&](const Tensor& copy) { return start_reduce_scatter(copy, caller, sizes); });
  }
  check_reducible(rows, "reduce_scatter", Reduce::sum);
  auto call = with_split(info_of("reduce_scatter", rows, caller), caller, sizes);
  const auto bytes = wire_of(caller).exchange(times(sizes, row_bytes_of(rows)));
  if (is_over_sockets(caller, rows)) {
    return start_reduce_scatter_over_sockets(std::move(rows), caller, std::move(call), bytes, std::move(sizes));
  }
  auto own = empty_rows(rows, sizes[caller.group.rank()]);
  return start(
      caller, std::move(call), bytes,
      [&] {
        std::vector<Tensor> outputs = {own};
        std::vector<std::vector<Tensor>> inputs = {cut(rows, sizes)};
        return backend_of(caller, rows).reduce_scatter(outputs, inputs);
      },
      [own] { return own; });
}

Handle start_all_gather_in_place(Tensor x, const Caller& caller) {
  if (is_staged(x, caller.group)) {
    return in_place_through_host(x, [&](const Tensor& copy) { return start_all_gather_in_place(copy, caller); });
  }
  check_movable(x, "all_gather", caller.group);
  const Sizes sizes(caller.group.size(), x.size(0) / caller.group.size());
  auto own = cut(x, sizes)[caller.group.rank()];
  const auto call = info_of_rows("all_gather", own, caller, sizes);
  const auto bytes = wire_of(caller).all_gather(static_cast<int64_t>(own.nbytes()));
  if (is_over_sockets(caller, x) && are_large(sizes[0], x)) {
    return start_parts_exchange(x, {}, caller, call, bytes, sizes);
  }
  return start(
      caller, call, bytes, [&] { return backend_of(caller, x)._allgather_base(x, own); }, [x] { return x; });
}

Handle start_reduce_scatter_in_place(Tensor x, const Caller& caller) {
  const Sizes sizes(caller.group.size(), x.size(0) / caller.group.size());
  auto own = cut(x, sizes)[caller.group.rank()];
  if (is_staged(x, caller.group) || is_over_sockets(caller, x)) {
    return Handle([own, x, begun = std::make_shared<Handle>(start_reduce_scatter(x, caller, sizes))] {
      const at::NoGradGuard no_grad;
      own.copy_(begun->wait());
      return x;
    });
  }
  check_reducible(x, "reduce_scatter", Reduce::sum);
  auto call = with_split(info_of("reduce_scatter", x, caller), caller, sizes);
  const auto bytes = wire_of(caller).exchange(times(sizes, row_bytes_of(x)));
  return start(
      caller, std::move(call), bytes, [&] { return backend_of(caller, x)._reduce_scatter_base(own, x); },
      [x] { return x; });
}

Handle start_all_to_all(Tensor rows, const Caller& caller, Sizes sent, Sizes received) {
  if (is_staged(rows, caller.group)) {
    return through_host(rows, [&](const Tensor& copy) { return start_all_to_all(copy, caller, sent, received); });
  }
  check_movable(rows, "all_to_all", caller.group);
  const auto call = info_of_rows("all_to_all", rows, caller, {});
  const auto bytes = wire_of(caller).exchange(times(sent, row_bytes_of(rows)));
  return start_exchange(std::move(rows), caller, call, bytes, std::move(sent), std::move(received), unchanged);
}

Handle start_gather(Tensor rows, const Caller& caller, int root, Sizes sizes) {
  if (is_staged(rows, caller.group)) {
    return through_host(rows, [&](const Tensor& copy) { return start_gather(copy, caller, root, sizes); });
  }
  check_movable(rows, "gather", caller.group);
  const auto call = with_root(info_of_rows("gather", rows, caller, sizes), root);
  const auto bytes = wire_of(caller).gather(root, static_cast<int64_t>(rows.nbytes()));
  Sizes sent(sizes.size(), 0), received = caller.group.rank() == root ? sizes : sent;
  sent[root] = rows.size(0);
  return start_exchange(std::move(rows), caller, call, bytes, std::move(sent), std::move(received), unchanged);
}

Handle start_scatter(Tensor rows, const Caller& caller, int root, Sizes sizes) {
  if (is_staged(rows, caller.group)) {
    return through_host(rows, [&](const Tensor& copy) { return start_scatter(copy, caller, root, sizes); });
  }
  check_movable(rows, "scatter", caller.group);
  const bool is_root = caller.group.rank() == root;
  const auto call = with_root(info_of_rows("scatter", rows, caller, sizes), root);
  if (!is_root) rows = rows.narrow(0, 0, 0);
  const auto bytes = wire_of(caller).scatter(root, times(sizes, row_bytes_of(rows)));
  Sizes received(sizes.size(), 0), sent = is_root ? sizes : received;
  received[root] = sizes[caller.group.rank()];
  return start_exchange(std::move(rows), caller, call, bytes, std::move(sent), std::move(received), unchanged);
}

Handle start_barrier(const Caller& caller) {
  flight::CallInfo call;
  call.operation = "barrier";
  call.where = caller.where;
  return start(
      caller, std::move(call), wire_of(caller).nothing(), [&] { return caller.group.calls().backend().barrier(); },
      [] { return Tensor(); });
}

}  // namespace tandem::comm::detail
