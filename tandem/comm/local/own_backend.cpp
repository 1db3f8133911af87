#include "tandem/comm/local/own_backend.h"

#include <ATen/ATen.h>

#include <exception>
#include <mutex>

#include "tandem/base/context.h"
#include "tandem/comm/local/local_reduce.h"
#include "tandem/flight/call_info.h"

namespace tandem::comm {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using Future = c10::ivalue::Future;

/// Either complete, or waiting for the group's thread.
class CallWork : public c10d::Work {
 public:
  CallWork(int rank, OpType type, Tensors results, std::function<void()> await = nullptr)
      : Work(rank, type), results_(std::move(results)), await_(std::move(await)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const bool has_ended = Work::wait(timeout);
    if (await_) await_();
    return has_ended;
  }

  void hold(at::Tensor scratch) { scratch_ = std::move(scratch); }

  void complete(std::exception_ptr fault) {
    finish(fault);  // wakes threads in Work::wait
    const std::lock_guard lock(mutex_of_future_);
    is_complete_ = true;
    fault_ = std::move(fault);
    if (future_) settle();
  }

  Tensors result() override { return results_; }

  c10::intrusive_ptr<Future> getFuture() override {
    const std::lock_guard lock(mutex_of_future_);
    if (!future_) {
      std::vector<c10::Device> devices;  // whose current stream a waiting one waits for
      if (!results_.empty() && !results_[0].is_cpu()) devices.push_back(results_[0].device());
      future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
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
  const std::function<void()> await_;
  at::Tensor scratch_;
  std::mutex mutex_of_future_;
  c10::intrusive_ptr<Future> future_;
  bool is_complete_ = false;
  std::exception_ptr fault_;
};

uint64_t signature_of(const at::Tensor& tensor, uint64_t detail) {
  return (static_cast<uint64_t>(tensor.numel()) << 16) ^ (static_cast<uint64_t>(tensor.scalar_type()) << 8) ^ detail;
}

uint64_t type_of(const at::Tensor& tensor) { return static_cast<uint64_t>(tensor.scalar_type()); }

std::string describe_call(const void* subject) { return static_cast<const flight::CallInfo*>(subject)->describe(); }

std::string describe_plain(const void* subject) { return static_cast<const char*>(subject); }

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

}  // namespace

OwnBackend::WorkPointer OwnBackend::done(OpType type, Tensors results) {
  auto work = c10::make_intrusive<CallWork>(getRank(), type, std::move(results));
  work->complete(nullptr);
  return work;
}

void OwnBackend::fail(const char* operation, const LocalFailure& failure) {
  abort(failure.text);
  TORCH_CHECK_WITH(DistBackendError, false, operation, ": ", failure.text);
}

void OwnBackend::hold(c10d::Work& work, at::Tensor scratch) { static_cast<CallWork&>(work).hold(std::move(scratch)); }

const char* OwnBackend::name_of(const Call& call) {
  const auto* known = flight::current_call();
  return known ? known->operation : call.operation;
}

void OwnBackend::describe(const Call& call, LocalCall& own) {
  own.terms.operation = name_of(call);
  own.terms.signature = call.signature;
  const auto* known = flight::current_call();
  own.describe = known ? &describe_call : &describe_plain;  // on other ranks' threads
  own.subject = known ? static_cast<const void*>(known) : call.operation;
}

std::string OwnBackend::words_of(const Call& call) {
  const auto* known = flight::current_call();
  return known ? known->describe() : call.operation;
}

void OwnBackend::check_tensor(const at::Tensor& tensor, const char* operation) const {
  TORCH_CHECK_VALUE(tensor.is_cpu() == is_of_host(), operation, ": tensor is on ", tensor.device(), ", wanted ",
                    is_of_host() ? "cpu" : "a device");
  TORCH_CHECK_VALUE(tensor.is_contiguous(), operation, ": tensor is not contiguous");
}

OwnBackend::Tensors OwnBackend::checked_list(const std::vector<Tensors>& lists, const char* operation) const {
  TORCH_CHECK_VALUE(lists.size() == 1 && static_cast<int>(lists[0].size()) == getSize(), operation,
                    ": wanted one list of ", getSize(), " tensors, one a rank");
  for (const auto& tensor : lists[0]) check_tensor(tensor, operation);
  return lists[0];
}

at::Tensor OwnBackend::only(const Tensors& tensors, const char* operation) const {
  TORCH_CHECK_VALUE(tensors.size() == 1, operation, ": list has ", tensors.size(), " tensors, wanted 1");
  check_tensor(tensors[0], operation);
  return tensors[0];
}

OwnBackend::WorkPointer OwnBackend::run(OpType type, const char* operation, Tensors results, const Tensors& used,
                                        std::function<void()> body) {
  auto later = is_later_ ? make_later(used) : Later();
  auto guarded = [this, operation, body = std::move(body), around = std::move(later.around)] {
    try {
      around ? around(body) : body();
    } catch (const LocalFailure& failure) {
      fail(operation, failure);
    }
  };
  if (!is_later_) {
    queue_->drain();
    guarded();
    return done(type, std::move(results));
  }
  auto work = c10::make_intrusive<CallWork>(getRank(), type, Tensors(), std::move(later.await));
  const auto* known = flight::current_call();
  queue_->push([guarded = std::function<void()>(std::move(guarded)), work, context = current_context(),
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

OwnBackend::WorkPointer OwnBackend::start_move(OpType type, const Call& call, Blocks blocks) {
  Tensors results;
  for (const auto& tensor : blocks.take) {
    if (tensor.defined()) results.push_back(tensor);
  }
  Tensors used;
  if (is_later_) {
    used = blocks.give;
    used.insert(used.end(), blocks.take.begin(), blocks.take.end());
  }
  return run(type, call.operation, results, used, [this, call, blocks = std::move(blocks)] { move(call, blocks); });
}

OwnBackend::WorkPointer OwnBackend::start_reduce(OpType type, const Call& call, const at::Tensor& tensor, Reduction op,
                                                 std::optional<int> root) {
  check_reduction(tensor.scalar_type(), op);
  return run(type, call.operation, {tensor}, {tensor},
             [this, call, tensor, op, root] { reduce_in_place(call, tensor, op, root); });
}

OwnBackend::WorkPointer OwnBackend::start_reduce_parts(Tensors parts, const at::Tensor& output, Reduction op) {
  const Call call = {"reduce_scatter", type_of(output) + 256 * static_cast<uint64_t>(op)};
  check_reduction(output.scalar_type(), op);
  Tensors used;
  if (is_later_) {
    used = parts;
    used.push_back(output);
  }
  return run(OpType::REDUCE_SCATTER, call.operation, {output}, used,
             [this, call, parts = std::move(parts), output, op] { reduce_parts(call, parts, output, op); });
}

OwnBackend::WorkPointer OwnBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const auto tensor = only(tensors, "broadcast");
  const int root = static_cast<int>(options.rootRank);
  Blocks blocks = {none(), none(), true};
  if (getRank() == root) blocks.give.assign(getSize(), tensor);
  blocks.take[root] = tensor;  // the root's own tensor is not copied
  return start_move(OpType::BROADCAST, {"broadcast", signature_of(tensor, root + 1)}, std::move(blocks));
}

OwnBackend::WorkPointer OwnBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const auto tensor = only(tensors, "all_reduce");
  const Reduction op = options.reduceOp;
  return start_reduce(OpType::ALLREDUCE, {"all_reduce", signature_of(tensor, op)}, tensor, op, {});
}

OwnBackend::WorkPointer OwnBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const auto tensor = only(tensors, "reduce_sum");
  const Reduction op = options.reduceOp;
  const int root = static_cast<int>(options.rootRank);
  return start_reduce(OpType::REDUCE, {"reduce_sum", signature_of(tensor, op + 16 * root)}, tensor, op, root);
}

OwnBackend::WorkPointer OwnBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions&) {
  const auto input = only(inputs, "all_gather");
  return start_move(OpType::ALLGATHER, {"all_gather", type_of(input)},
                    {Tensors(getSize(), input), checked_list(outputs, "all_gather"), true});
}

OwnBackend::WorkPointer OwnBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& options) {
  check_tensor(output, "all_gather");
  TORCH_CHECK_VALUE(output.numel() == input.numel() * getSize(), "all_gather: output has ", output.numel(),
                    " elements, wanted ", input.numel() * getSize());
  std::vector<Tensors> outputs = {rows_of(output.view({-1}), {}, getSize())};
  Tensors inputs = {input};
  return OwnBackend::allgather(outputs, inputs, options);
}

OwnBackend::WorkPointer OwnBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::GatherOptions& options) {
  const auto input = only(inputs, "gather");
  const int root = static_cast<int>(options.rootRank);
  Blocks blocks = {none(), none(), true};
  blocks.give[root] = input;
  if (getRank() == root) blocks.take = checked_list(outputs, "gather");
  return start_move(OpType::GATHER, {"gather", type_of(input) + 256 * root}, std::move(blocks));
}

OwnBackend::WorkPointer OwnBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                            const c10d::ScatterOptions& options) {
  const auto output = only(outputs, "scatter");
  const int root = static_cast<int>(options.rootRank);
  Blocks blocks = {none(), none()};
  blocks.take[root] = output;
  if (getRank() == root) blocks.give = checked_list(inputs, "scatter");
  return start_move(OpType::SCATTER, {"scatter", type_of(output) + 256 * root}, std::move(blocks));
}

OwnBackend::WorkPointer OwnBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) {
  return start_move(OpType::ALLTOALL, {"all_to_all", type_of(inputs.at(0))},
                    {checked_list({inputs}, "all_to_all"), checked_list({outputs}, "all_to_all")});
}

OwnBackend::WorkPointer OwnBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                  std::vector<int64_t>& output_splits,
                                                  std::vector<int64_t>& input_splits,
                                                  const c10d::AllToAllOptions& options) {
  check_tensor(input, "all_to_all");
  check_tensor(output, "all_to_all");
  auto give = rows_of(input, input_splits, getSize()), take = rows_of(output, output_splits, getSize());
  return alltoall(take, give, options);
}

OwnBackend::WorkPointer OwnBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  return start_reduce_parts(checked_list(inputs, "reduce_scatter"), only(outputs, "reduce_scatter"), options.reduceOp);
}

OwnBackend::WorkPointer OwnBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                         const c10d::ReduceScatterOptions& options) {
  check_tensor(input, "reduce_scatter");
  check_tensor(output, "reduce_scatter");
  TORCH_CHECK_VALUE(input.numel() == output.numel() * getSize(), "reduce_scatter: input has ", input.numel(),
                    " elements, wanted ", output.numel() * getSize());
  return start_reduce_parts(rows_of(input.view({-1}), {}, getSize()), output, options.reduceOp);
}

OwnBackend::WorkPointer OwnBackend::barrier(const c10d::BarrierOptions&) {
  return run(OpType::BARRIER, "barrier", {}, {}, [this] { meet({"barrier", 0}); });
}

}  // namespace tandem::comm
